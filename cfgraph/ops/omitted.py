"""Groups of TensorFlow's ops that have no kernel here, and why; no op of them has a class."""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class Omission(NamedTuple):
    """A group of ops without a kernel, the reason, and what to do instead.

    The expression `pattern` matches their names. It is compiled when it is first used, since every
    run imports the groups.
    """

    group: str
    reason: str
    hint: str
    pattern: str


def _omission(group: str, reason: str, hint: str, *patterns: str) -> Omission:
    return Omission(group, reason, hint, "|".join(f"(?:{p})" for p in patterns))


FEED_OUTPUTS: Final = "feed their outputs, or fetch what does not need them"

OMISSIONS: Final = (
    _omission(
        "input pipelines",
        "input pipelines (tf.data) are not run",
        "feed the elements: run the pipeline in TensorFlow, and feed what IteratorGetNext returns",
        r".*Dataset(V\d+)?(Reader)?|ExperimentalDataset.*",
        r".*Iterator(?!Cache).*",
        r"Dataset(?:Cardinality|Fingerprint|From|To).*",
        r".*(?:MemoryCache|SeedGenerator|StatsAggregator|ThreadPoolHandle).*",
        r"(?:Un)?[cC]ompressElement|(?:Un)?[wW]rapDatasetVariant|DummyIterationCounter",
        r"ComputeBatchSize|GetElementAtIndex|GetOptions|.*Dataset.*Handle",
    ),
    _omission(
        "files and readers",
        "a graph reads and writes no data files",
        FEED_OUTPUTS,
        r".*Reader(?:V\d)?|Reader[A-Z].*|ReadFile|WriteFile|MatchingFiles|RecordInput|ImmutableConst",
        r"Save(?:Slices)?|Restore(?:Slice)?|ShardedFilespec|DistributedSave|FileSystem.*",
        r"LoadAndRemapMatrix|GenerateVocabRemapping",
    ),
    _omission(
        "encoded data",
        "sound, JSON, and other messages are neither decoded nor encoded",
        FEED_OUTPUTS,
        r"(?:Decode|Encode)(?:Compressed|JSON.*|Jxl|Proto.*|Wav|WebP)",
        r"AudioSpectrogram|Mfcc|ParseTensor|SerializeTensor",
    ),
    _omission(
        "summaries and debugging",
        "event files and debug dumps are not written",
        "fetch the values that are summarized",
        r".*Summary(?:V\d)?|.*SummaryWriter|CreateSummary.*|ImportEvent|Debug.*|Summary.*",
    ),
    _omission(
        "collectives",
        "collectives need other processes",
        "partition the graph: transfers between its parts are _Send and _Recv",
        r"Collective.*|Nccl.*|.*TPU.*|Sync.*|Xla(?:AllReduce|ReduceScatter|Send.*|Recv.*)",
    ),
    _omission(
        "operations of XLA",
        "they call code of other libraries, or are for TPUs and sizes that change",
        "export the model anew: jax2tf writes a module for `XlaCallModule` by default",
        r"Xla.*",
    ),
    _omission(
        "barriers and locks",
        "barriers, locks, and old queues coordinate threads of a program",
        FEED_OUTPUTS,
        r"(?:FIFO|PaddingFIFO|Priority|RandomShuffle|Fake)Queue|Barrier.*",
        r"Queue(?:(?:Enqueue|Dequeue)(?:Many|UpTo)?|Size|Close|IsClosed)|MapDefun",
        r"(?:Ordered)?Map(?:Clear|IncompleteSize|Peek|Size|Stage|Unstage(?:NoKey)?)",
        r"Mutex.*|ConsumeMutexLock|(?:Un)?Batch(?:Function|Grad)?|Unbatch.*",
        r".*SessionHandle.*|.*SessionTensor",
    ),
    _omission(
        "quantized arithmetic of libraries",
        "quantized ops that oneDNN fuses, and those of StableHLO, are not computed",
        "run the graph as it was before they were fused, or with FakeQuant ops",
        r"Quantized(?:MatMul|(?:Depthwise)?Conv2D).*|Requantiz.*PerChannel",
        r"Uniform(?:Re|De)?[qQ]uanti[sz].*",
    ),
    _omission(
        "sampling of candidates and training of linear models",
        "only old models use them",
        FEED_OUTPUTS,
        r".*CandidateSampler|ComputeAccidentalHits|Sdca.*|K[Mm][Cc2e].*|NearestNeighbors",
        r"BoostedTrees.*|TensorForest.*|Decision.*|WALS.*",
    ),
    _omission(
        "sparse matrices of a library",
        "compressed sparse rows need their own library",
        "use tf.sparse, whose tensors are coordinates",
        r"CSRSparse.*|SparseMatrix.*|.*ToCSRSparseMatrix",
    ),
)


def find_omission(op: str) -> Omission | None:
    """The group of an op without a kernel, or None for any other op."""
    return next((group for group in OMISSIONS if re.fullmatch(group.pattern, op)), None)
