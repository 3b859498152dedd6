#!/usr/bin/env python3
"""Writes the tokenizer fixtures of tests/unit/token/data from the field's own implementations.

    pip install tokenizers==0.23.3 sentencepiece==0.2.3

pretokenizers.json  where Hugging Face `tokenizers` cuts, for every row of core/token/pretokenizer.c, with the components and
                    patterns of the models' tokenizer.json files. `words` are ends of words in bytes of the text.
bpe.json            small byte-level vocabularies, and the ids of the same texts.
spm.json            small SentencePiece BPE models, and the ids that `sentencepiece` gives.
"""
import io
import json
import pathlib
import random

import sentencepiece
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
from tokenizers.pre_tokenizers import ByteLevel, Digits, Punctuation, Sequence, Split

DATA = pathlib.Path(__file__).resolve().parents[1] / "unit" / "token" / "data"

ENGLISH = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = ENGLISH + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = ENGLISH + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN35 = (ENGLISH + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + ENGLISH + "?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + ENGLISH + "?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
DEEPSEEK_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ"
    "Ὗ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗ"
    "Ａ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃")
DEEPSEEK_CJK = "[一-龥ࠀ-一가-\ud7ff]+"
DEEPSEEK3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
             r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
BAILING = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")
SEED = ENGLISH + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"


def split(*patterns):
    return Sequence([Split(Regex(p), "isolated") for p in patterns] + [ByteLevel(False, use_regex=False)])


PRE = {
    # llama.cpp's own, for files that name none: it has no tokenizer.json.
    "default": split(r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    "gpt-2": ByteLevel(False),
    "llama-bpe": split(LLAMA3),
    "dbrx": split(LLAMA3),
    "qwen2": split(QWEN2),
    "qwen35": split(QWEN35),
    "smollm": Sequence([Digits(True), ByteLevel(False)]),
    "deepseek-llm": Sequence([Split(Regex(p), "isolated") for p in (
        "[\r\n]", r"\s?[" + DEEPSEEK_LETTERS + "]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", DEEPSEEK_CJK)]
        + [Digits(True), ByteLevel(False, use_regex=False)]),
    "deepseek-coder": Sequence([Split(Regex(p), "isolated") for p in (
        "[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK)] + [Digits(True), ByteLevel(False, use_regex=False)]),
    "deepseek-v3": split(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3),
    "tekken": split(TEKKEN),
    "gpt-4o": split(O200K),
    "falcon": Sequence([Punctuation("contiguous"), ByteLevel(False), Split(Regex("[0-9][0-9][0-9]"), "isolated")]),
    "bloom": split(BLOOM),
    "viking": Sequence([Split(Regex(BLOOM), "isolated"), Digits(True), ByteLevel(False, use_regex=False)]),
    "bailingmoe": split(BAILING),
    "seed-coder": split(SEED),
}

TEXTS = [
    "", " ", "  ", "\n", "\t", "a", "Hello world", " Hello  world ", "Hello, y'all! How are you?",
    "1 12 123 1234 12345 1234567890", "3.14159, 1,000,000 and 0x1F", "x1y22z333", "٣٤٥ ½ ² Ⅻ 〇 12٣4",
    "I'm you're he'd we'll they've it's don't", "I'M YOU'RE HE'D WE'LL THEY'VE IT'S DON'T", "'S 'LL 'ſ ’s l'été qu'il d'or",
    "camelCase HTTPServer XMLHttpRequest iPhone McDonald ABCdef ABC", "ÀÉÎõü ǅungla ʰa ªº Straße ΑΒΓδεζ",
    "人工智能是计算机科学的一个分支。ひらがなカタカナ ー 한국어 조선말 漢字かな交じり文123", "価格は1,234円です（税込）！", "汉字abc漢字ABC한글xyz",
    "line\nline\n\nline\n\n\n  indented\n\ttabbed\r\nwindows\r\n\r\n", "trailing spaces   ", "   leading", "a   b    c\t\td \t e",
    "\n \n  \n   x", " \n", "\n ", "x \n y", "tab\tnext", "a\u00a0b\u3000c\u2003d\u0085e\u2028f\u180eg",
    "🎉🎂 👩\u200d👩\u200d👧\u200d👦 ❤️ 🏳️\u200d🌈 👍🏽 🇩🇪", "e\u0301 a\u0300a\u0300 Z\u0351\u036b\u0343 n\u0303o", "हिन्दी भाषा में।", "العربية، ١٢٣۔", "ไทยแลนด์",
    "if (x == 1) { return y->z[0]; } // done!!!\n", "def f(a, *b, **c):\n    return a<=b!=c\n", "https://example.com/a/b?c=d&e=f#g",
    "$100 + €50 = £150 ± 3° ^~`|<>", "... --- === ___ ***", "\"quoted\" 'single' «guillemets» “curly” ‘curly’", "a.b,c!d?e…f。g，h、i",
    "/path/to/file\n//comment\n", "#hashtag @user _under_score-dash", "end.\n\n\nNext", "!!\n\n??\r\n", "(a(b)c)|d|e", "\u0000\u0001\u007f",
    "𝒜𝓁𝓅𝒽𝒶 𐐀𐐨 Ａｂｃ　１２３ ﬁ", "ქართული ᲥᲐᲠᲗᲣᲚᲘ ՀԱՅՈՑ", "'tis 'Twas rock'n'roll O'Reilly's", "ab12cd 3D 4K2 v1.2.3-rc4", "    four\n        eight",
]


def byte_ends(tokenizer, text):
    """Ends of words in bytes; pieces are in order and cover the text."""
    ends, at = [], 0
    for _, (start, end) in tokenizer.pre_tokenize_str(text):
        n_start, n_end = len(text[:start].encode()), len(text[:end].encode())
        assert n_start == at, (text, start, end)
        at = n_end
        ends.append(at)
    assert at == len(text.encode()), text
    return ends


def random_texts(rng, n):
    """Letters, digits, marks, spaces and symbols of several scripts, all of them older than Unicode 14."""
    atoms = [" ", "  ", "\n", "\r\n", "\t", "a", "Bc", "DEF", "é", "Ж", "ß", "1", "23", "456", "'s", "'LL", "'", ".", "!?", "/", "中", "文字", "한",
             "か", "ア", "e\u0301", "\u0300", "🎉", "\u200d", "\u00a0", "(", "-", "_", "$", "ʰ", "ª", "½", "٣", "،", "|", "…", "。", "ǅ", "\u3000"]
    return ["".join(rng.choice(atoms) for _ in range(rng.randrange(2, 14))) for _ in range(n)]


def write(name, value):
    DATA.mkdir(parents=True, exist_ok=True)
    (DATA / name).write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n")


def make_pretokenizers():
    texts = TEXTS + random_texts(random.Random(1), 120)
    write("pretokenizers.json", {"texts": texts, "words": {n: [byte_ends(p, t) for t in texts] for n, p in PRE.items()}})


def make_bpe():
    """One trained vocabulary a pre-tokenizer; the last token is one that no merge makes: only ignore_merges finds it."""
    corpus = ["The quick brown fox jumps over the lazy dog, and then the other dogs jump too. " * 3] + TEXTS
    out = {}
    for name in ("gpt-2", "llama-bpe", "deepseek-llm"):
        whole = name == "llama-bpe"
        t = Tokenizer(models.BPE())
        t.pre_tokenizer = PRE[name]
        t.train_from_iterator(corpus, trainers.BpeTrainer(
            vocab_size=420, show_progress=False, initial_alphabet=ByteLevel.alphabet()))
        state = json.loads(t.to_str())["model"]
        vocab, merges = state["vocab"], state["merges"]
        vocab["ĠHello"] = len(vocab)
        vocab["Straße".encode().decode("latin-1").replace("\x9f", "Ł")] = len(vocab)
        t = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(m) for m in merges], ignore_merges=whole))
        t.pre_tokenizer = PRE[name]
        texts = TEXTS + ["Straße", " Straße", "x Hello"] + random_texts(random.Random(2), 40)
        pieces = [p for p, _ in sorted(vocab.items(), key=lambda kv: kv[1])]
        out[name] = {"pieces": pieces, "merges": [" ".join(m) for m in merges], "texts": texts,
                     "ids": [t.encode(x, add_special_tokens=False).ids for x in texts]}
    write("bpe.json", out)


def train_spm(**options):
    model = io.BytesIO()
    rng = random.Random(3)
    lines = [x.replace("\n", " ") for x in TEXTS if x.strip()] * 3
    lines += ["the quick brown fox jumps over the lazy dog and then the other dogs jump too"] * 20
    lines += [" ".join(rng.choice("ab abc bca cab aab baa caa".split()) for _ in range(12)) for _ in range(200)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type="bpe", vocab_size=760, character_coverage=0.98,
        normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2, num_threads=1, **options)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def make_spm():
    # Gemma's: runs of spaces are user-defined, and GGUF files write those with real spaces.
    tags = ["<b>", "</b>", "<br>", "\u2581\u2581", "\u2581" * 3, "\u2581" * 4, "\n", "\n\n"]
    variants = {
        "prefix": dict(byte_fallback=True, add_dummy_prefix=True),
        "no_prefix_tags": dict(byte_fallback=True, add_dummy_prefix=False, user_defined_symbols=tags),
        "no_bytes": dict(byte_fallback=False, add_dummy_prefix=False, unk_id=0),
    }
    out = {}
    for name, options in variants.items():
        sp = train_spm(**options)
        kinds = []
        for i in range(sp.get_piece_size()):
            kinds.append(6 if sp.is_byte(i) else 3 if sp.is_control(i) else 2 if sp.is_unknown(i) else
                         4 if options.get("user_defined_symbols") and sp.id_to_piece(i) in tags else 1)
        texts = [t for t in TEXTS + random_texts(random.Random(4), 80) if "\u0000" not in t]
        texts += ["<b>bold</b><br>text", "a    b     c", "\n\n\n", "<b", "<b>>", "cabcabcabaabbaa", "abcabcabc aab", "a\u2581b c\u2581"]
        if name == "no_bytes":  # sentencepiece writes neighbouring unknown characters as one token
            def unknown(c):
                return sp.piece_to_id(c.replace(" ", "\u2581")) == sp.unk_id()
            texts = [t for t in texts if not any(unknown(a) and unknown(b) for a, b in zip(t, t[1:]))]
        pieces = [sp.id_to_piece(i) for i in range(sp.get_piece_size())]
        pieces = [p.replace("\u2581", " ") if k == 4 else p for p, k in zip(pieces, kinds)]
        out[name] = {"pieces": pieces,
                     "scores": [sp.get_score(i) for i in range(sp.get_piece_size())], "kinds": kinds,
                     "add_space_prefix": options["add_dummy_prefix"], "texts": texts, "ids": [sp.encode(t) for t in texts]}
    write("spm.json", out)


if __name__ == "__main__":
    make_pretokenizers()
    make_bpe()
    make_spm()
