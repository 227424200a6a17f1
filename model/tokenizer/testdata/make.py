"""Writes the tokenizers and references of this folder: python make.py, with tokenizers 0.22.1 (pip install tokenizers==0.22.1).

The vocabulary is trained on the few lines below. Every variant has the same one, and asks for something else around it.
"""
import hashlib
import json
import random
import struct

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the dog doesn't mind: it's asleep. They're old friends; we've seen them.",
    "I'll say what I'd say: gravity is what keeps the moon near the earth, and the earth near the sun.",
    "WHAT IS GRAVITY? What is it? In 1687 Newton said what it does; in 1915 Einstein said what it is. 3.14159, 2024, 100,000.",
    "func main() {\n\tfor i := 0; i < 10; i++ {\n\t\tfmt.Println(i)\n\t}\n}\n\n\n    return x    \n        if err != nil {\n",
    "L'été, la forêt est fraîche. Où êtes-vous allé ? Ça m'étonne, naïve enfant. Größe, Straße, über, schön.",
    "Привет, мир! Как дела? Что такое гравитация? Это сила, которая держит Луну рядом с Землёй.",
    "日本語の文章です。重力とは何ですか。 中文的句子，什么是重力？ 한국어 문장입니다. 중력이란 무엇입니까?",
    "مرحبا بالعالم، ما هي الجاذبية؟ שלום עולם, מהו כוח המשיכה? नमस्ते दुनिया, गुरुत्वाकर्षण क्या है? สวัสดีชาวโลก",
    "🙂 🙂🙂 👩‍👩‍👧 👍🏽 🇩🇪 ½ ² Ⅷ ١٢٣ ...!!! ---- ==== //// ''' \"\"\" ((())) \r\n\r\n \t\t",
]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
# The pattern of o200k_base (GPT-4o), which has no splitter of its own in the package.
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
ADDED = [AddedToken(s, special=True, normalized=False) for s in ("<bos>", "<eos>", "<|im_start|>", "<|im_end|>", "<|im|>")]
ADDED += [AddedToken(s, special=False, normalized=False) for s in ("<think>", "</think>", "<tool_call>", "日本", "<|im")]


def trained():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = byte_level(split(LLAMA3))
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(CORPUS * 2, trainers.BpeTrainer(
        vocab_size=700, show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    model = json.loads(t.to_str())["model"]
    for token in ("xyzzy", "Ġxyzzy"):  # which no merges make
        model["vocab"][token] = len(model["vocab"])
    return model


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def byte_level(*before):
    return pre_tokenizers.Sequence([*before, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def template(t, single):
    return processors.TemplateProcessing(single=single, special_tokens=[(s, t.token_to_id(s)) for s in ("<bos>", "<eos>")])


def variants(model):
    def new(pre, model=model, added=ADDED, nfc=False, ignore_merges=False):
        merges = [tuple(m) for m in model["merges"]]
        t = Tokenizer(models.BPE(vocab=model["vocab"], merges=merges, ignore_merges=ignore_merges))
        t.pre_tokenizer, t.decoder = pre, decoders.ByteLevel()
        if nfc:
            t.normalizer = normalizers.NFC()
        t.add_tokens(added)
        return t

    llama3 = new(byte_level(split(LLAMA3)), ignore_merges=True)
    llama3.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template(llama3, "<bos> $A")])
    yield "llama3", llama3
    qwen2 = new(byte_level(split(QWEN2)), nfc=True)
    qwen2.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    yield "qwen2", qwen2
    yield "gpt2", new(pre_tokenizers.ByteLevel(add_prefix_space=False))
    yield "smollm2", new(pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]))

    # Everything that an added token can ask for; and a vocabulary without the bytes 0x07 and 0xbd.
    fewer = [token for token in sorted(model["vocab"], key=model["vocab"].get) if not {"ć", "½"} & set(token)]
    fewer = {token: id for id, token in enumerate(fewer)}
    merges = [m for m in model["merges"] if m[0] + m[1] in fewer and m[0] in fewer and m[1] in fewer]
    options = new(pre_tokenizers.ByteLevel(add_prefix_space=True), nfc=True, model={"vocab": fewer, "merges": merges}, added=ADDED + [
        AddedToken("<left>", lstrip=True, special=True, normalized=False),
        AddedToken("<right>", rstrip=True, special=True, normalized=False),
        AddedToken("<both>", lstrip=True, rstrip=True, special=False, normalized=False),
        AddedToken("word", single_word=True, special=False, normalized=False),
        AddedToken("Caf\u00e9", special=False, normalized=True),  # é in one
        AddedToken("Ou\u0300", special=False, normalized=True),  # ù in two
        AddedToken("strip", lstrip=True, rstrip=True, single_word=True, special=False, normalized=True),
    ])
    options.post_processor = template(options, "<bos> $A <eos>")
    yield "options", options

    o200k = new(byte_level(pre_tokenizers.Digits(individual_digits=False), split(O200K)), nfc=False)
    o200k.post_processor = template(o200k, "<bos> <eos> $A:0 <eos>:0 <bos>:0")
    yield "o200k", o200k


TEXTS = [
    "", " ", "  ", "   \n", "\n\n\n", "\t \t", "a  b   c    d", "  lead", "trail  ", " \n \n x", "\r\n\r\n", "a\r\nb\rc\n\nd\n", "x \u00a0\u3000\u2028 y", "\u0085\u000b\u000c",
    "0", "12", "123", "1234", "1234567890", "3.14159", "a1b22c333d4444", "½", "4½", "²³ Ⅷ ⑧", "١٢٣٤", "१२३", "𝟙𝟚𝟛𝟜", "𐵀𐵁𐵂𐵃", "\U0001ccf0\U0001ccf1",
    "don't I'll we've they're it's I'm he'd", "DON'T I'LL WE'VE THEY'RE IT'S I'M HE'D", "I'Ll we'vE 's'S 't", "it'ſ 'ſ 'ſs", "x'ſa'ſeen 'ſa", "'", "''", "'r 'v 'l 're've'll", "' s", "’s don’t",
    "cafe\u0301", "e\u0301\u0323 e\u0323\u0301", "\u1112\u1161\u11ab", "\u212b\u2126\u212a", "\u0958", "a\u0300\u0898\u0301", "\u0041\u1ac5\u0301", "\u0300", "ộ o\u0302\u0323 o\u0323\u0302",
    "\u1c89\u1c8a", "\U00010d4a\U00010d6f x", "\ua7cb\ua7da", "\U0002ebf0\U0002ee5d", "\U0001e5d0\U0001e5f1",
    "🙂", "👩‍👩‍👧‍👦", "👍🏽👍", "🇩🇪🇫🇷", "☺️ ☺", "1️⃣", "🙂🙂🙂 x🙂y",
    "\x00", "a\x00b", "\x01\x02\x03\x07\x1b[0m", "\x7f", "\u200b\u200d\u200e", "\ufeffbom", "\ufffd", "\ue000\U0010ffff",
    "日本語の文章", "中文。中文！", "한국어 문장", "日 本", "مرحبا بالعالم", "שלום", "नमस्ते दुनिया", "สวัสดีชาวโลก", "Привет, мир", "Ελληνικά", "የአማርኛ", "ꓘꓯ ꓘ",
    "xyzzy", "a xyzzy xyzzyx", "The quick brown fox doesn't jump.", "What is gravity?", "func main() {\n\tfmt.Println(i)\n}\n", "a.b,c;d:e!f?g", "....----====", "foo_bar fooBar FooBAR Foo", "http://example.org/a?b=c&d=%20",
    "<bos>", "<bos>text<eos>", "<|im_start|>user\nhi<|im_end|>\n", "<|im|><|im_", "<|im_start|", "<|imx", "<think>x</think>", "< think>", "日本<think>日本", "<<bos>>", "<bos><bos>",
    "a <left> b", "a<left>b", " <left> ", "a <right> b", "a \n<right>\n\n b", "a  <both>  b", "<both><both>", "<left><right>", "  <left>  <right>  ", "a <right> <left> b", "<both> <bos> <both>",
    "word", "words", "a word.", "sword word", "word_", "wordword", "word word", "word\u0301", "日word", "(word)", "word1", "-word-", "½word", "\u200dword",
    "Café", "Cafe\u0301", "Cafés", "Où", "Ou\u0300", "xOu\u0300x", " strip ", "a strip b", "astrip", "strip strip", "a  strip<bos>strip  b", "Ou\u0300Cafe\u0301",
]
POOLS = [
    range(0x20, 0x7f), range(0x20, 0x7f), range(0x61, 0x7b), [9, 10, 13, 32, 32, 32, 0xa0, 0x3000], range(0x30, 0x3a), range(0, 0x20),
    range(0xa0, 0x250), range(0x300, 0x370), range(0x400, 0x530), range(0x5d0, 0x650), range(0x900, 0x980), range(0xe00, 0xe5c), range(0x1100, 0x1200),
    range(0x3040, 0x3100), range(0x4e00, 0x9fff), range(0xac00, 0xd7a4), range(0x1f300, 0x1f700), [0x200d, 0xfe0f, 0x1f469, 0x1f3fd, 0xbd, 0x17f, 0x27],
]
BITS = ["don't", "I'LL", "\r\n", "  \n", "    ", " the", " what", "12345", "日本語", "<bos>", "<eos>", "<think>", " word ", " <left> ", " <both> ", "Cafe\u0301"]


def random_text(r):
    out = []
    for _ in range(r.randint(1, 8)):
        if r.random() < .4:
            out.append(r.choice(BITS))
        else:
            pool = r.choice(POOLS)
            out.append("".join(chr(r.choice(pool)) for _ in range(r.randint(1, 6))))
    return "".join(out)


# Texts of one long word, or nearly so: what repeats, and how often.
LONG = [("a", 100_000), ("the", 33_334), ("日本語", 12_000), ("Привет", 9_000), (" ", 100_000), ("-=", 50_000), ("gravity'sé", 10_000), ("🙂", 25_000), ("12", 50_000)]


def digest(ids):
    return hashlib.sha256(struct.pack(f"<{len(ids)}i", *ids)).hexdigest()


def write(name, value):
    with open(name, "w", encoding="utf-8", newline="\n") as f:
        f.write(value + "\n")


def lines(items):
    return "[\n" + ",\n".join(json.dumps(x, ensure_ascii=True) for x in items) + "\n]"


def main():
    r = random.Random(1)
    model = trained()
    texts = TEXTS + [random_text(r) for _ in range(100)]
    for name, t in variants(model):
        t = json.loads(t.to_str())
        if name in ("gpt2", "options"):  # the older way of writing merges
            t["model"]["merges"] = [" ".join(m) for m in t["model"]["merges"]]
        data = json.dumps(t, ensure_ascii=False, separators=(",", ":"))
        write(name + ".json", data)
        t = Tokenizer.from_str(data)
        cases = []
        for text in texts:
            ids = t.encode(text).ids
            case = {"text": text, "ids": ids}
            decoded = t.decode(ids, skip_special_tokens=True)
            if decoded != text:
                case["decoded"] = decoded
            cases.append(case)
        size = t.get_vocab_size()
        some = []
        for _ in range(60):
            ids = [r.randrange(size) for _ in range(r.randint(1, 10))]
            some.append({"ids": ids, "all": t.decode(ids, skip_special_tokens=False), "text": t.decode(ids)})
        long = [{"unit": u, "times": n, "count": len(ids), "sha256": digest(ids)} for u, n in LONG for ids in [t.encode(u * n).ids]]
        write(name + ".vectors.json", '{"cases": ' + lines(cases) + ', "ids": ' + lines(some) + ', "long": ' + lines(long) + "}")
    patterns = [pre_tokenizers.Split(Regex(p), "isolated") for p in (LLAMA3, QWEN2)] + [pre_tokenizers.Digits(individual_digits=True)]
    write("words.json", lines([text, *([word for word, _ in p.pre_tokenize_str(text)] for p in patterns)] for text in texts))
    edges = [0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec, 0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff]
    broken = [bytes(r.choice(edges) for _ in range(r.randint(1, 9))) for _ in range(300)]
    write("lossy.json", lines([b.hex(), b.decode(errors="replace")] for b in broken))


main()
