"""Strings: parts, joining, splitting, numbers, patterns, formatting, printing, asserting."""

import ml_dtypes
import numpy as np

from tests.ops.harness import case, i32

F32, F64, F16, BF16, I32, I64 = (
    np.float32,
    np.float64,
    np.float16,
    ml_dtypes.bfloat16,
    np.int32,
    np.int64,
)
NAN, INF = np.nan, np.inf
WORDS = ["a", "", "aé€😀 Z", b"\xff\xfez", b"\xe2\x82", "  trim \t\n\v\f\r", b"a\x00b\x1c"]
GRID = [["a", "b", "c"], ["d", "e", "f"]]


def none(*shape):
    return np.zeros(shape, object)


SIMPLE = [
    case("ShardedFilename", ["a/b", i32(3)[0], i32(12)[0]]),
    *(
        case("StringLength", [x], {"unit": u})
        for x in (WORDS, "ab", none(0, 2))
        for u in ("BYTE", "UTF8_CHAR")
    ),
    *(
        case(op, [x], {"encoding": e})
        for op in ("StringUpper", "StringLower")
        for x in (WORDS, "Ab")
        for e in ("", "utf-8")
    ),
    case("StringUpper", [["ßǆŉİıΣς"]], {"encoding": "utf-8"}),
    case("StringLower", [["ẞİΣΑΣ ΌΔΟΣ"]], {"encoding": "utf-8"}),
    *(
        case(op, [WORDS], {"encoding": "latin-1"}, error=True)
        for op in ("StringUpper", "StringLower")
    ),
    *(case("StringStrip", [x]) for x in (WORDS, " a ", none(0))),
    *(
        case("StringJoin", x, {"separator": s})
        for x in ([WORDS], [GRID, GRID], [GRID, "x", GRID], ["x", "y"])
        for s in ("", ", ")
    ),
    case("StringJoin", []),
    case("StringJoin", [none(0), "x"]),
    case("StringJoin", [["a", "b"], ["c"]], error=True),
    case("StringJoin", [["a", "b"], [["c"], ["d"]]], error=True),
    *(case("EncodeBase64", [[*WORDS, "abc"]], {"pad": p}) for p in (False, True)),
    *(
        case("DecodeBase64", [x])
        for x in ("YQ", "YQ==", "_-8", "YR", "", "YWI=", "YWJ=", ["YWJj", "YWJjZA"])
    ),
    *(
        case("DecodeBase64", [x], error=True)
        for x in ("YQ=", "/+8=", "Y", "Y Q", "YQ==YQ==", "=", "====", "YWJj====")
    ),
]
SUBSTR = [
    *(
        case("Substr", [["hello", "abcd"], I32(p), I32(n)])
        for p in (0, 1, 4, -1, -4)
        for n in (0, 1, 9, -1)
    ),
    *(
        case("Substr", [["aéb€c", "ééé"], I64(p), I64(n)], {"unit": "UTF8_CHAR"})
        for p in (0, 1, 3, -1, -3)
        for n in (0, 1, 9, -1)
        if p >= 0 or n >= 0
    ),
    case("Substr", [["aéb"], I32(-1), I32(-1)], {"unit": "UTF8_CHAR"}, error=True),
    case("Substr", [["hello"], i32(4), i32(9)]),
    case("Substr", [[b"a\xff\x80\xe2\x82b"], I32(1), I32(2)], {"unit": "UTF8_CHAR"}),
    case("Substr", [["hello"], i32([1], [2]), i32([1], [2])]),
    case("Substr", [["hello", "there"], i32([1, 2], [2, 1]), i32([1, 2], [2, 1])]),
    case("Substr", ["hello", i32(1, 2, 3), i32(1, 1, 1)]),
    case("Substr", [GRID, i32([0, 0, 1], [1, 0, 0]), i32([0, 1, 1], [1, 2, 0])]),
    case("Substr", [none(0), I32(1), I32(2)]),
    *(case("Substr", [["hello", "abc"], I32(p), I32(1)], error=True) for p in (4, -4)),
    *(
        case("Substr", [["aéb"], I32(p), I32(1)], {"unit": "UTF8_CHAR"}, error=True)
        for p in (4, -4)
    ),
    case("Substr", ["hello", i32(1, 2, 3), I32(1)], error=True),
    case("Substr", [[["ab"], ["cd"]], i32(1, 2, 3), i32(1, 1, 1)], error=True),
    case("Substr", [[[["ab", "cd"]]], i32([1, 0], [1, 1]), i32([1, 0], [1, 1])], error=True),
]
JOIN = [
    *(
        case("ReduceJoin", [GRID, np.array(a, I32)], {"keep_dims": k, "separator": "."})
        for a in (0, 1, -1, [0, 1], [1, 0], [-1, 0], [])
        for k in (False, True)
    ),
    case("ReduceJoin", [[GRID, GRID], i32(2, 0)], {"separator": ","}),
    case("ReduceJoin", ["x", i32()]),
    *(case("ReduceJoin", [none(2, 0), i32(*a)], {"separator": ","}) for a in ((0,), (1,), (0, 1))),
    *(case("ReduceJoin", [GRID, i32(*a)], error=True) for a in ((2,), (-3,), (0, 0), (1, -1))),
    case("ReduceJoin", ["x", I32(0)], error=True),
    case("UnsortedSegmentJoin", [["a", "b", "c"], i32(0, 2, 0), I32(4)], {"separator": "+"}),
    case("UnsortedSegmentJoin", [GRID, i32(1, 1), I32(2)], {"separator": "+"}),
    case("UnsortedSegmentJoin", [GRID, i32([0, 1, 0], [1, 0, 0]), I32(2)]),
    case("UnsortedSegmentJoin", [["a", "b"], i32(0, 2), I32(2)], error=True),
    case("UnsortedSegmentJoin", [["a", "b"], i32(0), I32(2)], error=True),
]
SPLIT = [
    *(
        case("StringSplit", [["a b  c", "", " d", "a\tb,c"], d], {"skip_empty": e})
        for d in (" ", ", ", "", "\t")
        for e in (False, True)
    ),
    case("StringSplit", [none(0), " "]),
    case("StringSplit", ["a b", " "], error=True),
    *(
        case(
            "StringSplitV2",
            [[" a b  c ", "", "d\t\ne", "a<>b<><>c", "<>", "a,b,,c"], s],
            {"maxsplit": m},
        )
        for s in ("", " ", "<>", ",")
        for m in (-1, 0, 1, 2)
    ),
    case("StringSplitV2", [none(0), " "]),
    case("StringSplitV2", [["a"], [" "]], error=True),
]
RAW = [
    *(
        case(
            "DecodeRaw",
            [["abcdefghijklmnop", "ABCDEFGHIJKLMNOP"]],
            {"out_type": t, "little_endian": e},
        )
        for t in (F64, I32, I64, np.uint8, np.int16, np.complex64, np.complex128)
        for e in (True, False)
    ),
    case("DecodeRaw", [[b"\x00<\x00\xbc"]], {"out_type": F16}),
    case("DecodeRaw", [[b"\x80?\x80\xbf"]], {"out_type": BF16}),
    case("DecodeRaw", [[b"\x00\x01\x02"]], {"out_type": np.bool_}),
    case("DecodeRaw", ["ab"], {"out_type": np.uint8}),
    case("DecodeRaw", [["", ""]], {"out_type": I32}),
    case("DecodeRaw", [none(0)], {"out_type": I32}),
    case("DecodeRaw", [none(2, 0)], {"out_type": I32}),
    case("DecodeRaw", [["abcd", "ef"]], {"out_type": np.int16}, error=True),
    case("DecodeRaw", [["abc"]], {"out_type": np.int16}, error=True),
    *(
        case(
            "DecodePaddedRaw",
            [["abcd", "ef", "", "ghijkl"], I32(4)],
            {"out_type": t, "little_endian": e},
        )
        for t in (I32, np.int16, np.uint8)
        for e in (True, False)
    ),
    case("DecodePaddedRaw", ["ab", I32(4)], {"out_type": np.uint8}),
    *(
        case("DecodePaddedRaw", [["abc"], I32(n)], {"out_type": np.int16}, error=True)
        for n in (0, 3, -2)
    ),
]
NUMBERS = np.array([1, 2.5, -1e10, 1e-10, 0.1, 1 / 3, NAN, INF, -INF, -0.0, 123456.789, 1e300])
FORMATS = [
    {},
    {"precision": 3},
    {"precision": 0},
    {"scientific": True},
    {"scientific": True, "precision": 1},
    {"shortest": True},
    {"shortest": True, "precision": 3},
    {"shortest": True, "fill": "#"},
    *({"width": 12, "fill": f} for f in ("", "0", "-", "+", " ", "#")),
    {"width": 0, "fill": " "},
]
WRITTEN = [
    *(case("AsString", [NUMBERS.astype(t)], a) for t in (F32, F64) for a in FORMATS),
    *(case("AsString", [NUMBERS[4:].astype(t)], {"shortest": True}) for t in (F16, BF16)),
    *(case("AsString", [np.array([1 + 2j, -0.5 - 1j, NAN])], a) for a in FORMATS),
    case("AsString", [np.array([1 + 2j, 0.1 - 1j], np.complex64)], {"shortest": True}),
    *(
        case("AsString", [np.array([0, 1, 100]).astype(t)])
        for t in (I32, I64, np.int8, np.uint8, np.uint16, np.uint64)
    ),
    *(
        case("AsString", [np.array([0, -5, 100])], {"width": 6, "fill": f})
        for f in ("", "0", "-", "+", " ", "#")
    ),
    case("AsString", [np.array([True, False])]),
    case("AsString", [np.array([True, False])], {"width": 7, "fill": "-"}),
    *(case("AsString", [["ab", "c"]], {"width": 5, "fill": f}) for f in ("", "0", "-", "+")),
    case("AsString", [["ab", "c"]], {"precision": 5, "scientific": True}),
    case("AsString", [F32(2.5)]),
    case("AsString", [np.zeros((0, 2))]),
    *(
        case("AsString", [x], a, error=True)
        for x, a in [
            (I32(1), {"precision": 2}),
            (I32(1), {"scientific": True}),
            (I32(1), {"shortest": True}),
            (np.array(True), {"precision": 2}),
            (np.array(True), {"scientific": True}),
            (F32(1), {"scientific": True, "shortest": True}),
            (F32(1), {"fill": "x"}),
            (F32(1), {"fill": "00"}),
        ]
    ),
]
FINE = [
    "1",
    " 1 ",
    "\t\n\v\f\r1",
    "1.5",
    "1e3",
    "nan",
    "NaN",
    "-nan",
    "inf",
    "-INF",
    "infinity",
    "0x10",
]
FINE += [
    "0x1p3",
    "+1",
    "-1",
    "1e400",
    "-1e400",
    "1e-400",
    "99999999999999999999",
    "1.",
    "-.5",
    "-0",
    "00012",
]
FINE += ["1e+5", "1E5", "nan(1)", "1e39", "1e-46", "0X.8P1", "1.17549429e-38"]
ILL = [
    "",
    " ",
    "abc",
    "1abc",
    "--1",
    "1_000",
    "1,000",
    "infi",
    ".",
    "1e",
    "1 2",
    "1d",
    "+",
    "+ 1",
    "0b1",
    "+-1",
]
WHOLE = ["1", " 1 ", "+1", "00012", "0", "2147483647"]
READ = [
    *(case("StringToNumber", [FINE], {"out_type": t}) for t in (F32, F64)),
    *(case("StringToNumber", [x], {"out_type": t}, error=True) for x in ILL for t in (F32, I32)),
    *(case("StringToNumber", [WHOLE], {"out_type": t}) for t in (I32, I64, np.uint32, np.uint64)),
    *(case("StringToNumber", [["-1", "-0"]], {"out_type": t}) for t in (I32, I64)),
    *(
        case("StringToNumber", [x], {"out_type": t}, error=True)
        for x in ("-1", "-0")
        for t in (np.uint32, np.uint64)
    ),
    *(
        case("StringToNumber", [x], {"out_type": t}, error=True)
        for x, t in [
            ("2147483648", I32),
            ("-2147483649", I32),
            ("9223372036854775808", I64),
            ("4294967296", np.uint32),
            ("18446744073709551616", np.uint64),
            ("1.5", I32),
            ("0x10", I32),
        ]
    ),
    case("StringToNumber", [none(0, 2)]),
    case("StringToNumber", [[["1"], ["2"]]]),
]
REWRITES = [
    (["aaa", "bab", ""], "a", "x"),
    (["a1b2"], r"(\w)(\d)", r"\2\1"),
    (["a-b, c!", "\u00e9-e", "x\n\v y"], r"[^a-z0-9]", r"<\0>"),
    (["a-b, c!", "[x]^y_z\\", ""], r"[!\-,-\.\[\\\]^_]+", ""),
    (["abcbca", "cab"], "(a)(bc|c)|b", r"\2\\\1"),
    (["abc", ""], "b*", "-"),
    (["abc", "éé", b"\xc3("], "", "-"),
    (["baac"], "a*", "-"),
    (["aaa"], "a*?", "-"),
    (["a"], "a", r"\1"),
    (["ba"], "a", r"x\0\\"),
    (["ba"], "a", r"x\yz"),
    (["é", b"a\xffb"], ".", "x"),
    (["a\nb"], "a.b", "-"),
    (["a\nb"], "(?s)a.b", "-"),
    (["abab"], "^a", "-"),
    (["a\n", "a"], "a$", "x"),
    (["a\nb\nb"], "(?m)^b$", "x"),
    (["ab", "a{,2}b"], "a{,2}b", "x"),
    (["aaa"], "a{2}", "x"),
    (["a1_ b"], "[[:alpha:]]", "x"),
    (["a1_ b"], "[[:^alpha:]1]", "x"),
    (["a.b"], r"\Qa.\E", "x"),
    (["ab"], "(?P<n>a)(?:b)", r"\1\1"),
    (["ab"], r"\Aa|b\z", "x"),
    (["aé b", b"a\xff"], r"\w", "x"),
    (["aé b", b"a\xff"], r"\W", "x"),
    (["aé b", b"a\xff"], r"[^a]", "x"),
    (["aé b\v", b"a\xff"], r"[\W\s]", "x"),
    (["É", "k"], "(?i)é", "x"),
    (["ab"], r"\x61|\x{62}|\141", "x"),
    (["a-b_"], r"\-|\_", "x"),
    (["\a\f\n\r\t\v"], r"\a|\n|\v", "x"),
    (["aab"], "(?U)a+", "x"),
    (["aab"], "(?U)a+?", "x"),
    (["abcB"], "(?i:B)c", "x"),
    (["aBcb"], "a(?i)b|C", "x"),
    (["ab]"], "[]a]", "x"),
    (["a-c^"], "[a\\-^]", "x"),
    (["a-c^"], "[-a]", "x"),
    (["жb1"], r"\pL", "x"),
    (["жB1"], r"\p{Lu}", "x"),
    (["жb1"], r"\PL", "x"),
    (["жb1"], r"[^\pL]", "x"),
    (["ab"], "a|ab", "x"),
    (["a b"], r"\b", "-"),
    (["ab"], r"\B", "-"),
    (["aab"], "(a)|b", r"[\1]"),
    (["[a&&b"], "[[&]", "x"),
    (["a b c d"], r"(\w+) (\w+)", r"\2-\1"),
    (["2024-01-02"], r"(\d+)-(\d+)-(\d+)", r"\3.\2.\1"),
]
ILL_PATTERNS = [
    "(",
    ")",
    "[a",
    "a**",
    "a*+",
    "a++",
    "(?<n>a)",
    r"\Z",
    r"(a)\1",
    "(?=a)",
    "(?#c)",
    "a{1001}",
    "*a",
    "\\",
    "[[:foo:]]",
]
PATTERNS = [
    *(
        case("RegexReplace", [x, p, w], {"replace_global": g})
        for x, p, w in REWRITES
        for g in (True, False)
    ),
    *(case("StaticRegexReplace", [x], {"pattern": p, "rewrite": w}) for x, p, w in REWRITES[:3]),
    case(
        "StaticRegexReplace", [["aaa"]], {"pattern": "a", "rewrite": "b", "replace_global": False}
    ),
    case("RegexReplace", [GRID, "[a-c]", "x"]),
    *(case("RegexReplace", [["a"], p, "x"], error=True) for p in ILL_PATTERNS),
    case("RegexReplace", [["a"], ["a"], "x"], error=True),
    case("RegexReplace", [["a"], "a", ["x"]], error=True),
    *(
        case("RegexFullMatch", [["ab", "abc", "", "a\n", b"a\xffb"], p])
        for p in ("a.*b", "a|ab", "", "a$", "(?i)AB.?")
    ),
    case("RegexFullMatch", [["a"], "("], error=True),
    case("RegexFullMatch", [["a"], ["a"]], error=True),
    case("StaticRegexFullMatch", [GRID], {"pattern": "[a-d]"}),
    case("StaticRegexFullMatch", [GRID], {"pattern": "("}, error=True),
]
LONG = np.arange(60).reshape(5, 3, 4)
SHOWN = [
    np.array([1, 2.5, 1e10, 1e-10, 0.1, 1 / 3, NAN, INF, -0.0, 1e6, 1e7, 123456789, 1e21], F32),
    np.array([1, 2.5, 1e10, 1e-10, 0.1, 1 / 3, NAN, INF, 1e15, 1e16, 123456789.123, 1e-5, 1e100]),
    np.array([1, 2.5, 0.1, 65504], F16),
    np.array([1, 2.5, 0.1, 65504], BF16),
    np.arange(7),
    np.arange(6, dtype=np.int8),
    np.array([2**64 - 1], np.uint64),
    LONG,
    np.array([True, False]),
    np.array([[1 + 2j, 3]] * 2),
    np.array(["a\n\"'\\\0é", b"\x7f\xff"], object),
    "x",
    F32(3),
    np.array(1 + 2j),
    np.zeros((0, 3)),
    np.zeros((2, 0)),
    np.zeros((2, 0, 3)),
]
TEXT = [
    *(
        case("StringFormat", [x], {"template": "<%s>", "summarize": n})
        for x in SHOWN
        for n in (3, -1, 1, 0)
        # TensorFlow says nothing at all of booleans then
        if n or getattr(x, "dtype", None) != np.bool_
    ),
    case("StringFormat", [I32(1), I32(2)], {"template": "a {} b {} c", "placeholder": "{}"}),
    case("StringFormat", [], {"template": "abc", "T": []}),
    case("StringFormat", [I32(1), I32(2)], {"template": "a %s b"}, error=True),
    case("StringFormat", [I32(1)], {"template": "a %s %s b"}, error=True),
    *(case("Print", [F32(2), *x], {"message": "text: "}) for x in ([], [LONG], [LONG, F32(1)])),
    case("Print", [["a", "b"], LONG], {"first_n": 1, "summarize": -1}),
    *(
        case("PrintV2", ["hello"], {"output_stream": s})
        for s in ("stderr", "stdout", "log(info)", "log(error)")
    ),
    case("PrintV2", ["hello"], {"end": ""}),
    case("PrintV2", ["hello"], {"output_stream": "nowhere"}, error=True),
    case("PrintV2", [["hello"]], error=True),
    case("Assert", [np.array(True), LONG]),
    case("Assert", [np.array(True), LONG, "x"], {"summarize": 9}),
    case("Assert", [np.array(False), LONG], error=True),
    case("Assert", [np.array([True, True]), LONG], error=True),
    case("Timestamp", compare="shape"),
]
CASES = SIMPLE + SUBSTR + JOIN + SPLIT + RAW + WRITTEN + READ + PATTERNS + TEXT
