"""Convolutions in two and three dimensions, and their transposes, as one matrix product each."""

from __future__ import annotations

from cfgraph.ops.convolution_kernels import ConvolutionFilter, ConvolutionForward, ConvolutionInput

_FLAT = (
    "T: {float16, bfloat16, float32, float64}, strides: list(int), use_cudnn_on_gpu: bool = true, "
    "padding: {'SAME', 'VALID', 'EXPLICIT'}, explicit_paddings: list(int) = [], "
    "data_format: {'NHWC', 'NCHW'} = 'NHWC', dilations: list(int) = [1, 1, 1, 1]"
)
_FLAT_INT = _FLAT.replace("float64}", "float64, int32}")


class Conv2D(ConvolutionForward):
    """Convolution of images with filters."""

    signature = "input: T, filter: T -> output: T"
    attrs = _FLAT_INT


class Conv2DBackpropInput(ConvolutionInput):
    """Gradient of Conv2D with respect to the image."""

    signature = "input_sizes: int32, filter: T, out_backprop: T -> output: T"
    attrs = _FLAT_INT


class Conv2DBackpropInputV2(ConvolutionInput):
    """Gradient of Conv2D with respect to the image, which is there for its shape."""

    signature = "input: T, filter: T, out_backprop: T -> output: T"
    attrs = _FLAT_INT
    sizes_given = False
    host_inputs = ()
    constant_inputs = ()
    compiled = False


class Conv2DBackpropFilter(ConvolutionFilter):
    """Gradient of Conv2D with respect to the filter."""

    signature = "input: T, filter_sizes: int32, out_backprop: T -> output: T"
    attrs = _FLAT


class Conv2DBackpropFilterV2(ConvolutionFilter):
    """Gradient of Conv2D with respect to the filter, which is there for its shape."""

    signature = "input: T, filter: T, out_backprop: T -> output: T"
    attrs = _FLAT
    sizes_given = False
    host_inputs = ()
    constant_inputs = ()
    compiled = False


_DEPTHWISE = _FLAT.replace("use_cudnn_on_gpu: bool = true, ", "")


class DepthwiseConv2dNative(ConvolutionForward):
    """Convolution of each channel with its own filters."""

    signature = "input: T, filter: T -> output: T"
    attrs = _DEPTHWISE
    depthwise = True
    stem = "DepthwiseConv2dNative"


class DepthwiseConv2dNativeBackpropInput(ConvolutionInput):
    """Gradient of DepthwiseConv2dNative with respect to the image."""

    signature = "input_sizes: int32, filter: T, out_backprop: T -> output: T"
    attrs = _DEPTHWISE
    depthwise = True
    stem = "DepthwiseConv2dNative"


class DepthwiseConv2dNativeBackpropFilter(ConvolutionFilter):
    """Gradient of DepthwiseConv2dNative with respect to the filters."""

    signature = "input: T, filter_sizes: int32, out_backprop: T -> output: T"
    attrs = _DEPTHWISE
    depthwise = True
    stem = "DepthwiseConv2dNative"


_SOLID_LAST = (
    "T: {float16, float32, float64}, strides: list(int) >= 5, "
    "padding: {'SAME', 'VALID'}, dilations: list(int) = [1, 1, 1, 1, 1]"
)
_SOLID = (
    "T: {float16, bfloat16, float32, float64}, strides: list(int) >= 5, "
    "padding: {'SAME', 'VALID'}, data_format: {'NDHWC', 'NCDHW'} = 'NDHWC', "
    "dilations: list(int) = [1, 1, 1, 1, 1]"
)


class Conv3D(ConvolutionForward):
    """Convolution of volumes with filters."""

    signature = "input: T, filter: T -> output: T"
    attrs = _SOLID
    rank = 5
    stem, version = "Conv3D", "V2"


class Conv3DBackpropInput(ConvolutionInput):
    """Gradient of Conv3D with respect to the volume, which is there for its shape."""

    signature = "input: T, filter: T, out_backprop: T -> output: T"
    attrs = _SOLID_LAST
    rank = 5
    stem, version = "Conv3D", "V2"
    sizes_given = False
    host_inputs = ()
    constant_inputs = ()
    compiled = False


class Conv3DBackpropInputV2(ConvolutionInput):
    """Gradient of Conv3D with respect to the volume."""

    signature = "input_sizes: Tshape, filter: T, out_backprop: T -> output: T"
    attrs = _SOLID + ", Tshape: {int32, int64} = int32"
    rank = 5
    stem, version = "Conv3D", "V2"


class Conv3DBackpropFilter(ConvolutionFilter):
    """Gradient of Conv3D with respect to the filter, which is there for its shape."""

    signature = "input: T, filter: T, out_backprop: T -> output: T"
    attrs = _SOLID_LAST
    rank = 5
    stem, version = "Conv3D", "V2"
    sizes_given = False
    host_inputs = ()
    constant_inputs = ()
    compiled = False


class Conv3DBackpropFilterV2(ConvolutionFilter):
    """Gradient of Conv3D with respect to the filter."""

    signature = "input: T, filter_sizes: int32, out_backprop: T -> output: T"
    attrs = _SOLID
    rank = 5
    stem, version = "Conv3D", "V2"
