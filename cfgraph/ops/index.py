"""Ops of each family, by module; `pytest --update` regenerates this file."""

from typing import Final

FAMILIES: Final = {
    "accumulators": (
        "AccumulatorApplyGradient AccumulatorNumAccumulated AccumulatorSetGlobalStep "
        "AccumulatorTakeGradient ConditionalAccumulator ResourceAccumulatorApplyGradient "
        "ResourceAccumulatorNumAccumulated ResourceAccumulatorSetGlobalStep "
        "ResourceAccumulatorTakeGradient ResourceConditionalAccumulator "
        "SparseAccumulatorApplyGradient SparseAccumulatorTakeGradient "
        "SparseConditionalAccumulator"
    ),
    "activation": (
        "Elu EluGrad LeakyRelu LeakyReluGrad Relu Relu6 Relu6Grad ReluGrad Selu SeluGrad Softplus "
        "SoftplusGrad Softsign SoftsignGrad"
    ),
    "arithmetic": (
        "AccumulateNV2 Add AddN AddV2 Atan2 BitwiseAnd BitwiseOr BitwiseXor Invert LeftShift "
        "Maximum Minimum Mul NextAfter PopulationCount Pow RightShift SquaredDifference Sub"
    ),
    "bias": "BiasAdd BiasAddGrad BiasAddV1",
    "box_sampling": (
        "SampleDistortedBoundingBox SampleDistortedBoundingBoxV2 "
        "StatelessSampleDistortedBoundingBox"
    ),
    "box_selection": (
        "CombinedNonMaxSuppression NonMaxSuppression NonMaxSuppressionV2 NonMaxSuppressionV3 "
        "NonMaxSuppressionV4 NonMaxSuppressionV5 NonMaxSuppressionWithOverlaps"
    ),
    "broadcast": "BroadcastArgs BroadcastGradientArgs BroadcastTo Tile TileGrad",
    "cast": "Angle Bitcast Cast Complex ComplexAbs Conj Imag Real",
    "checkpoints": "DisableCopyOnRead MergeV2Checkpoints RestoreV2 SaveV2 ShardedFilename",
    "colors": "AdjustContrastv2 AdjustHue AdjustSaturation HSVToRGB RGBToHSV",
    "comparison": (
        "ApproximateEqual Equal Greater GreaterEqual Less LessEqual LogicalAnd LogicalNot "
        "LogicalOr NotEqual Select SelectV2"
    ),
    "concat": "Concat ConcatOffset ConcatV2 Pack ParallelConcat",
    "constants": (
        "CheckNumerics CheckNumericsV2 Const Copy CopyHost DebugGradientIdentity "
        "DebugGradientRefIdentity DebugIdentity DeepCopy EnsureShape GuaranteeConst Identity "
        "IdentityN OnesLike Placeholder PlaceholderV2 PlaceholderWithDefault PreventGradient "
        "RefIdentity Snapshot StopGradient ZerosLike"
    ),
    "control_flow": (
        "ControlTrigger Enter Exit LoopCond Merge NextIteration NoOp Recv RefEnter RefExit "
        "RefMerge RefNextIteration RefSelect RefSwitch Send Switch _HostRecv _HostSend _Recv "
        "_Send _SwitchN _XlaMerge"
    ),
    "convolution": (
        "Conv Conv2D Conv2DBackpropFilter Conv2DBackpropFilterV2 Conv2DBackpropInput "
        "Conv2DBackpropInputV2 Conv3D Conv3DBackpropFilter Conv3DBackpropFilterV2 "
        "Conv3DBackpropInput Conv3DBackpropInputV2 DepthwiseConv2dNative "
        "DepthwiseConv2dNativeBackpropFilter DepthwiseConv2dNativeBackpropInput"
    ),
    "counting": (
        "DenseCountSparseOutput RaggedBincount RaggedCountSparseOutput SparseBincount "
        "SparseCountSparseOutput"
    ),
    "cropping": (
        "CropAndResize CropAndResizeGradBoxes CropAndResizeGradImage ExtractGlimpse "
        "ExtractGlimpseV2"
    ),
    "ctc": "CTCLoss CTCLossV2",
    "ctc_decoders": "CTCBeamSearchDecoder CTCGreedyDecoder",
    "data_formats": "DataFormatDimMap DataFormatVecPermute",
    "decomposition": (
        "BatchCholesky BatchCholeskyGrad BatchSelfAdjointEig BatchSelfAdjointEigV2 BatchSvd "
        "Cholesky CholeskyGrad Eig Lu Qr SelfAdjointEig SelfAdjointEigV2 Svd"
    ),
    "dense_tables": "AnonymousMutableDenseHashTable MutableDenseHashTableV2",
    "diagonal": (
        "BatchMatrixDiag BatchMatrixDiagPart BatchMatrixSetDiag Diag DiagPart MatrixDiag "
        "MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3 MatrixDiagV2 MatrixDiagV3 MatrixSetDiag "
        "MatrixSetDiagV2 MatrixSetDiagV3"
    ),
    "dilation": "Dilation2D Dilation2DBackpropFilter Dilation2DBackpropInput",
    "distinct": "ListDiff Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2",
    "division": (
        "Div DivNoNan FloorDiv FloorMod Mod MulNoNan RealDiv TruncateDiv TruncateMod Xdivy "
        "Xlog1py Xlogy"
    ),
    "drawing": "DrawBoundingBoxes DrawBoundingBoxesV2",
    "edit_distance": "EditDistance",
    "einsum": "Einsum",
    "elementary": (
        "Abs Acos Acosh Asin Asinh Atan Atanh Cos Cosh Exp Expm1 Inv InvGrad Log Log1p Neg "
        "Reciprocal ReciprocalGrad Rsqrt RsqrtGrad Sigmoid SigmoidGrad Sign Sin Sinh Sqrt "
        "SqrtGrad Square Tan Tanh TanhGrad"
    ),
    "error_functions": "Erf Erfc",
    "examples": "DecodeCSV ParseExample ParseExampleV2 ParseSingleExample",
    "fake_quant": (
        "FakeQuantWithMinMaxArgs FakeQuantWithMinMaxArgsGradient FakeQuantWithMinMaxVars "
        "FakeQuantWithMinMaxVarsGradient FakeQuantWithMinMaxVarsPerChannel "
        "FakeQuantWithMinMaxVarsPerChannelGradient"
    ),
    "feature_crosses": "RaggedCross SparseCross SparseCrossHashed SparseCrossV2",
    "fourier": "FFT FFT2D FFT3D IFFT IFFT2D IFFT3D IRFFT IRFFT2D IRFFT3D RFFT RFFT2D RFFT3D",
    "fractional_pooling": (
        "FractionalAvgPool FractionalAvgPoolGrad FractionalMaxPool FractionalMaxPoolGrad"
    ),
    "functional": (
        "Case DeviceIndex EagerPyFunc FakeParam For If PartitionedCall PyFunc PyFuncStateless "
        "RemoteCall StatefulPartitionedCall StatelessCase StatelessIf StatelessWhile "
        "SymbolicGradient ToBool While XlaIf XlaLaunch XlaWhile _Arg _ArrayToList _DeviceArg "
        "_DeviceRetval _If _ListToArray _Retval _While"
    ),
    "fused": (
        "FusedPadConv2D FusedResizeAndPadConv2D _FusedBatchNormEx _FusedConv2D "
        "_FusedDepthwiseConv2dNative _FusedMatMul _UnaryOpsComposition"
    ),
    "gather": "Gather GatherNd GatherV2",
    "generators": (
        "NonDeterministicInts RngReadAndSkip RngSkip StatefulRandomBinomial "
        "StatefulStandardNormal StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniform "
        "StatefulUniformFullInt StatefulUniformInt"
    ),
    "gru": "GRUBlockCell GRUBlockCellGrad",
    "histogram": "Bincount DenseBincount HistogramFixedWidth L2Loss",
    "image_encoding": "EncodeJpeg EncodeJpegVariableQuality EncodePng",
    "image_patches": "ExtractImagePatches ExtractVolumePatches",
    "images": (
        "DecodeAndCropJpeg DecodeBmp DecodeGif DecodeImage DecodeJpeg DecodePng ExtractJpegShape"
    ),
    "incomplete_gamma": "Igamma IgammaGradA Igammac RandomGammaGrad",
    "inplace": "InplaceAdd InplaceSub InplaceUpdate",
    "isotonic_regression": "IsotonicRegression",
    "linear_solve": (
        "BandedTriangularSolve BatchMatrixSolve BatchMatrixSolveLs BatchMatrixTriangularSolve "
        "MatrixSolve MatrixSolveLs MatrixTriangularSolve TridiagonalMatMul TridiagonalSolve"
    ),
    "lookup_table_files": "InitializeTableFromTextFile InitializeTableFromTextFileV2",
    "lookup_tables": (
        "AnonymousHashTable AnonymousMutableHashTable AnonymousMutableHashTableOfTensors "
        "HashTable HashTableV2 InitializeTable InitializeTableV2 LookupTableExport "
        "LookupTableExportV2 LookupTableFind LookupTableFindV2 LookupTableImport "
        "LookupTableImportV2 LookupTableInsert LookupTableInsertV2 LookupTableRemoveV2 "
        "LookupTableSize LookupTableSizeV2 MutableHashTable MutableHashTableOfTensors "
        "MutableHashTableOfTensorsV2 MutableHashTableV2"
    ),
    "lstm": "BlockLSTM BlockLSTMGrad BlockLSTMGradV2 BlockLSTMV2 LSTMBlockCell LSTMBlockCellGrad",
    "matmul": "BatchMatMul BatchMatMulV2 BatchMatMulV3 MatMul SparseMatMul",
    "matrix_functions": (
        "BatchMatrixBandPart BatchMatrixDeterminant BatchMatrixInverse Cross LogMatrixDeterminant "
        "MatrixBandPart MatrixDeterminant MatrixExponential MatrixInverse MatrixLogarithm "
        "MatrixSquareRoot"
    ),
    "max_pooling": (
        "MaxPool MaxPool3D MaxPool3DGrad MaxPool3DGradGrad MaxPoolGrad MaxPoolGradGrad "
        "MaxPoolGradGradV2 MaxPoolGradGradWithArgmax MaxPoolGradV2 MaxPoolGradWithArgmax "
        "MaxPoolV2 MaxPoolWithArgmax"
    ),
    "normalization": (
        "BatchNormWithGlobalNormalization BatchNormWithGlobalNormalizationGrad FusedBatchNorm "
        "FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3 FusedBatchNormV2 "
        "FusedBatchNormV3 LRN LRNGrad"
    ),
    "onednn": (
        "_MklBatchMatMul _MklBatchMatMulV2 _MklConjugateTranspose _MklEinsum _MklMatMul "
        "_MklNativeAvgPool _MklNativeAvgPool3D _MklNativeAvgPool3DGrad _MklNativeAvgPoolGrad "
        "_MklNativeConv2D _MklNativeConv2DBackpropFilter _MklNativeConv2DBackpropInput "
        "_MklNativeConv3D _MklNativeConv3DBackpropFilterV2 _MklNativeConv3DBackpropInputV2 "
        "_MklNativeDepthwiseConv2dNative _MklNativeDepthwiseConv2dNativeBackpropFilter "
        "_MklNativeDepthwiseConv2dNativeBackpropInput _MklNativeFusedBatchNorm "
        "_MklNativeFusedBatchNormEx _MklNativeFusedBatchNormGrad _MklNativeFusedBatchNormGradV2 "
        "_MklNativeFusedBatchNormGradV3 _MklNativeFusedBatchNormV2 _MklNativeFusedBatchNormV3 "
        "_MklNativeFusedConv2D _MklNativeFusedDepthwiseConv2dNative _MklNativeFusedMatMul "
        "_MklNativeMaxPool _MklNativeMaxPool3D _MklNativeMaxPool3DGrad _MklNativeMaxPoolGrad "
        "_MklSoftmax _MklTranspose"
    ),
    "onednn_chains": (
        "_MklFusedBatchMatMulV2 _MklFusedMish _MklLayerNorm "
        "_MklNativeConv2DBackpropFilterWithBias _MklNativeConv2DWithBias _MklNativePadWithConv2D "
        "_MklNativePadWithFusedConv2D _MklSwish"
    ),
    "optimizers": (
        "ApplyAdaMax ApplyAdadelta ApplyAdagrad ApplyAdagradDA ApplyAdagradV2 ApplyAdam "
        "ApplyAddSign ApplyCenteredRMSProp ApplyFtrl ApplyFtrlV2 ApplyGradientDescent "
        "ApplyMomentum ApplyPowerSign ApplyProximalAdagrad ApplyProximalGradientDescent "
        "ApplyRMSProp ResourceApplyAdaMax ResourceApplyAdadelta ResourceApplyAdagrad "
        "ResourceApplyAdagradDA ResourceApplyAdagradV2 ResourceApplyAdam "
        "ResourceApplyAdamWithAmsgrad ResourceApplyAddSign ResourceApplyCenteredRMSProp "
        "ResourceApplyFtrl ResourceApplyFtrlV2 ResourceApplyGradientDescent "
        "ResourceApplyKerasMomentum ResourceApplyMomentum ResourceApplyPowerSign "
        "ResourceApplyProximalAdagrad ResourceApplyProximalGradientDescent ResourceApplyRMSProp "
        "ResourceSparseApplyAdadelta ResourceSparseApplyAdagrad ResourceSparseApplyAdagradDA "
        "ResourceSparseApplyAdagradV2 ResourceSparseApplyCenteredRMSProp ResourceSparseApplyFtrl "
        "ResourceSparseApplyFtrlV2 ResourceSparseApplyKerasMomentum ResourceSparseApplyMomentum "
        "ResourceSparseApplyProximalAdagrad ResourceSparseApplyProximalGradientDescent "
        "ResourceSparseApplyRMSProp SparseApplyAdadelta SparseApplyAdagrad SparseApplyAdagradDA "
        "SparseApplyAdagradV2 SparseApplyCenteredRMSProp SparseApplyFtrl SparseApplyFtrlV2 "
        "SparseApplyMomentum SparseApplyProximalAdagrad SparseApplyProximalGradientDescent "
        "SparseApplyRMSProp"
    ),
    "optional": "OptionalFromValue OptionalGetValue OptionalHasValue OptionalNone",
    "padding": "MirrorPad MirrorPadGrad Pad PadV2",
    "permutation": (
        "ConjugateTranspose InvertPermutation Reverse ReverseSequence ReverseV2 Roll Transpose"
    ),
    "pooling": "AvgPool AvgPool3D AvgPool3DGrad AvgPoolGrad",
    "printing": "Assert Print PrintV2 StringFormat Timestamp",
    "projective_transform": "ImageProjectiveTransformV2 ImageProjectiveTransformV3",
    "quantization": (
        "Dequantize QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeAndDequantizeV4 "
        "QuantizeAndDequantizeV4Grad QuantizeV2"
    ),
    "quantized_arithmetic": (
        "QuantizedAdd QuantizedBatchNormWithGlobalNormalization QuantizedBiasAdd QuantizedMatMul "
        "QuantizedMul QuantizedRelu QuantizedRelu6"
    ),
    "quantized_images": "QuantizedAvgPool QuantizedConv2D QuantizedMaxPool QuantizedResizeBilinear",
    "queues": (
        "FIFOQueueV2 PaddingFIFOQueueV2 PriorityQueueV2 QueueCloseV2 QueueDequeueManyV2 "
        "QueueDequeueUpToV2 QueueDequeueV2 QueueEnqueueManyV2 QueueEnqueueV2 QueueIsClosedV2 "
        "QueueSizeV2 RandomShuffleQueueV2"
    ),
    "ragged": "RaggedGather RaggedRange",
    "ragged_conversion": "RaggedTensorToSparse RaggedTensorToTensor",
    "ragged_variants": (
        "RaggedTensorFromVariant RaggedTensorToVariant RaggedTensorToVariantGradient"
    ),
    "random_sampling": (
        "Multinomial ParameterizedTruncatedNormal RandomGamma RandomPoisson RandomPoissonV2 "
        "RandomShuffle RandomStandardNormal RandomUniform RandomUniformInt StatelessMultinomial "
        "TruncatedNormal"
    ),
    "ranges": "Empty Fill LinSpace OneHot Range SobolSample",
    "reduction": "All Any ArgMax ArgMin EuclideanNorm Max Mean Min Prod Sum",
    "rejection_samplers": (
        "StatelessRandomBinomial StatelessRandomGammaV2 StatelessRandomGammaV3 "
        "StatelessRandomPoisson"
    ),
    "requantization": (
        "QuantizeDownAndShrinkRange QuantizedConcat QuantizedReshape RequantizationRange Requantize"
    ),
    "resampling": (
        "ResizeArea ResizeBicubic ResizeBicubicGrad ScaleAndTranslate ScaleAndTranslateGrad"
    ),
    "reshape": "ExpandDims Rank Reshape Shape ShapeN Size Squeeze",
    "resizing": "ResizeBilinear ResizeBilinearGrad ResizeNearestNeighbor ResizeNearestNeighborGrad",
    "resource_variables": (
        "AssignAddVariableOp AssignSubVariableOp AssignVariableOp DestroyResourceOp "
        "ReadVariableOp ResourceCountUpTo ResourceGather ResourceGatherNd VarHandleOp "
        "VarIsInitializedOp VariableShape _ReadVariablesOp _VarHandlesOp"
    ),
    "rounding": "Ceil ClipByValue Floor IsFinite IsInf IsNan Rint Round",
    "scan": "Cumprod Cumsum CumulativeLogsumexp",
    "scatter": (
        "DynamicPartition DynamicStitch ParallelDynamicStitch ScatterNd ScatterNdNonAliasingAdd "
        "TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub TensorScatterUpdate"
    ),
    "scatter_variables": (
        "ResourceScatterAdd ResourceScatterDiv ResourceScatterMax ResourceScatterMin "
        "ResourceScatterMul ResourceScatterNdAdd ResourceScatterNdMax ResourceScatterNdMin "
        "ResourceScatterNdSub ResourceScatterNdUpdate ResourceScatterSub ResourceScatterUpdate "
        "ScatterAdd ScatterDiv ScatterMax ScatterMin ScatterMul ScatterNdAdd ScatterNdMax "
        "ScatterNdMin ScatterNdSub ScatterNdUpdate ScatterSub ScatterUpdate"
    ),
    "segment": (
        "SegmentMax SegmentMaxV2 SegmentMean SegmentMin SegmentMinV2 SegmentProd SegmentProdV2 "
        "SegmentSum SegmentSumV2"
    ),
    "sequence_examples": "ParseSequenceExample ParseSequenceExampleV2 ParseSingleSequenceExample",
    "sets": "DenseToDenseSetOperation DenseToSparseSetOperation SetSize SparseToSparseSetOperation",
    "slicing": "Slice XlaDynamicSlice XlaDynamicUpdateSlice",
    "softmax": (
        "LogSoftmax Softmax SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits"
    ),
    "sorting": (
        "ApproxTopK Bucketize InTopK InTopKV2 LowerBound NthElement TopK TopKV2 UpperBound Where"
    ),
    "space_blocks": (
        "BatchToSpace BatchToSpaceND DepthToSpace SpaceToBatch SpaceToBatchND SpaceToDepth"
    ),
    "sparse": "SparseReshape SparseTensorDenseAdd SparseTensorDenseMatMul SparseToDense",
    "sparse_arithmetic": (
        "SparseAdd SparseAddGrad SparseDenseCwiseAdd SparseDenseCwiseDiv SparseDenseCwiseMul "
        "SparseSlice SparseSliceGrad SparseSparseMaximum SparseSparseMinimum"
    ),
    "sparse_reduction": (
        "SparseReduceMax SparseReduceMaxSparse SparseReduceSum SparseReduceSumSparse SparseSoftmax"
    ),
    "sparse_rows": (
        "RaggedFillEmptyRows RaggedFillEmptyRowsGrad SparseConcat SparseFillEmptyRows "
        "SparseFillEmptyRowsGrad SparseReorder SparseSplit"
    ),
    "sparse_segment": (
        "SparseSegmentMean SparseSegmentMeanGrad SparseSegmentMeanGradV2 "
        "SparseSegmentMeanWithNumSegments SparseSegmentSqrtN SparseSegmentSqrtNGrad "
        "SparseSegmentSqrtNGradV2 SparseSegmentSqrtNWithNumSegments SparseSegmentSum "
        "SparseSegmentSumGrad SparseSegmentSumGradV2 SparseSegmentSumWithNumSegments"
    ),
    "sparse_serialization": (
        "DeserializeManySparse DeserializeSparse SerializeManySparse SerializeSparse"
    ),
    "special": (
        "BesselI0 BesselI0e BesselI1 BesselI1e BesselJ0 BesselJ1 BesselK0 BesselK0e BesselK1 "
        "BesselK1e BesselY0 BesselY1 Betainc Dawsn Digamma Erfinv Expint FresnelCos FresnelSin "
        "Lgamma Ndtri Polygamma Spence Zeta"
    ),
    "split": "Split SplitV Unpack",
    "stablehlo": "XlaCallModule",
    "stacks": "Stack StackClose StackCloseV2 StackPop StackPopV2 StackPush StackPushV2 StackV2",
    "staging": "Stage StageClear StagePeek StageSize Unstage",
    "stateless_random": (
        "StatelessRandomGetAlg StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg "
        "StatelessRandomNormal StatelessRandomNormalV2 StatelessRandomUniform "
        "StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2 StatelessRandomUniformInt "
        "StatelessRandomUniformIntV2 StatelessRandomUniformV2 StatelessTruncatedNormal "
        "StatelessTruncatedNormalV2"
    ),
    "strided_slice": (
        "ResourceStridedSliceAssign StridedSlice StridedSliceAssign StridedSliceGrad "
        "TensorStridedSliceUpdate"
    ),
    "string_hashing": (
        "Fingerprint StringToHashBucket StringToHashBucketFast StringToHashBucketStrong"
    ),
    "string_join_split": (
        "ReduceJoin StringJoin StringNGrams StringSplit StringSplitV2 UnsortedSegmentJoin"
    ),
    "string_numbers": "AsString StringToNumber",
    "string_patterns": "RegexFullMatch RegexReplace StaticRegexFullMatch StaticRegexReplace",
    "strings": (
        "DecodeBase64 DecodePaddedRaw DecodeRaw EncodeBase64 StringLength StringLower StringStrip "
        "StringUpper Substr"
    ),
    "tensor_array_legacy": (
        "TensorArray TensorArrayClose TensorArrayCloseV2 TensorArrayConcat TensorArrayConcatV2 "
        "TensorArrayGather TensorArrayGatherV2 TensorArrayGrad TensorArrayGradV2 TensorArrayPack "
        "TensorArrayRead TensorArrayReadV2 TensorArrayScatter TensorArrayScatterV2 "
        "TensorArraySize TensorArraySizeV2 TensorArraySplit TensorArraySplitV2 TensorArrayUnpack "
        "TensorArrayV2 TensorArrayWrite TensorArrayWriteV2"
    ),
    "tensor_array_ops": (
        "TensorArrayCloseV3 TensorArrayConcatV3 TensorArrayGatherV3 TensorArrayGradV3 "
        "TensorArrayGradWithShape TensorArrayReadV3 TensorArrayScatterV3 TensorArraySizeV3 "
        "TensorArraySplitV3 TensorArrayV3 TensorArrayWriteV3"
    ),
    "tensor_list_conversion": (
        "TensorListConcat TensorListConcatLists TensorListConcatV2 TensorListFromTensor "
        "TensorListGather TensorListScatter TensorListScatterIntoExistingList TensorListScatterV2 "
        "TensorListSplit TensorListStack"
    ),
    "tensor_list_ops": (
        "EmptyTensorList TensorListElementShape TensorListGetItem TensorListLength "
        "TensorListPopBack TensorListPushBack TensorListPushBackBatch TensorListReserve "
        "TensorListResize TensorListSetItem"
    ),
    "tensor_map": (
        "EmptyTensorMap TensorMapErase TensorMapHasKey TensorMapInsert TensorMapLookup "
        "TensorMapSize TensorMapStackKeys"
    ),
    "truncated_sampling": "StatelessParameterizedTruncatedNormal StatelessShuffle",
    "unicode_strings": "UnicodeDecode UnicodeDecodeWithOffsets UnicodeEncode UnicodeTranscode",
    "unsorted_segment": (
        "UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum"
    ),
    "variables": (
        "Assign AssignAdd AssignSub CountUpTo DestroyTemporaryVariable IsVariableInitialized "
        "TemporaryVariable Variable VariableV2"
    ),
    "xla_functions": (
        "XlaReduce XlaReduceWindow XlaScatter XlaSelectAndScatter XlaVariadicReduce "
        "XlaVariadicReduceV2 XlaVariadicSort"
    ),
    "xla_operations": (
        "XlaBroadcastHelper XlaConv XlaConvV2 XlaDot XlaDotV2 XlaEinsum XlaGather XlaKeyValueSort "
        "XlaOptimizationBarrier XlaPad XlaReducePrecision XlaRngBitGenerator XlaSelfAdjointEig "
        "XlaSharding XlaSort XlaSvd"
    ),
}
