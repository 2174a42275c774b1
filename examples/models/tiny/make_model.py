#!/usr/bin/env python3
"""Train the tokenizer of the model "tiny" and write tokenizer.json and tokenizer_config.json beside this file.

usage: make_model.py [OUT_DIR]          needs: pip install tokenizers==0.23.2

The training text is made here, from words.txt and the phrases below, by a random number generator with a fixed seed;
the result is the same, byte for byte, on every run.
"""
import json
import pathlib
import random
import sys

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import AddedToken, __version__

HERE = pathlib.Path(__file__).resolve().parent
ENTRIES = 4000  # of the vocabulary, added tokens not counted
SENTENCES = 24000

# Words with the sign before them, digits one by one, punctuation with its line
# ends, blanks: the split that byte-level vocabularies of today have in common.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]

SHAPES = """The A N V+s P the A N.
N+p V P the N, and the N V+s R.
Why does the N V? Because the A N V+s P a N.
Please V the N P the N and V it R.
E said that the N of the N had to V P E.
I don't think we've V+d the A N; it's R A.
You can V a N with the N, but you shouldn't V the A N+p.
If the N V+s, the N will V R; otherwise we V the N.
R, E V+d the A N P the N, which they'd V+d before.
How many N+p are there P the A N?
We'll need D N+p, D N+p and about D,D A N+p.
When E V+s, the A N+p V P the N for D minutes.
First V the N. Then V the N. Finally, V the A N.
There isn't a A N P E, so E can't V one.
What is the A N that O V+d O the N?
O and O were R P the N when the N V+d.
Write a A N about N+p that V O N, and explain what O N means.
Are there any N+p which O could V? O think so, but not R.
I have been V+d by the N; what should I do next?
O would have V+d the N if O had known O N.
It was R A that the N could V the N at D:D on E.""".splitlines()

CODE = [
    "func N_V(n int) (int, error) {\n\tif n < 0 {\n\t\treturn 0, errors.New(\"N: A N\")\n\t}\n\treturn n * D, nil\n}\n",
    "def V_N(N, N2=None):\n    for i, x in enumerate(N):\n        if x is None:\n            continue\n        print(f\"{i}: {x}\")\n    return [v for v in N if v > D]\n",
    "type N struct {\n\tID    int64\n\tName  string\n\tCount map[string]int\n}\n\nfunc (n *N) V() bool { return n.Count[\"N\"] != D }\n",
    "for (let i = 0; i < N.length; i++) {\n  const N2 = await V(N[i]);\n  if (!N2) throw new Error('A N');\n}\n",
    "SELECT N, count(*) FROM N2 WHERE N > D AND A = 'N' GROUP BY N ORDER BY D DESC;\n",
    "# V the N\nset -eu\nfor f in *.N; do\n  V --N=\"$f\" --N2 D | sort -u > \"${f%.N}.txt\"\ndone\n",
    "pub fn V(N: &str) -> Result<Vec<u32>, Error> {\n    let mut out = Vec::with_capacity(D);\n    out.push(N.len() as u32);\n    Ok(out)\n}\n",
    "class N:\n    \"\"\"A A N.\"\"\"\n\n    def __init__(self, N2: str) -> None:\n        self.N2 = N2\n\n    def V(self) -> int:\n        return len(self.N2) + D\n",
]
DATA = [
    '{"N": "A", "N2": D, "ok": true, "items": ["N", "N2", null], "score": D.D}\n',
    '{"type": "function", "function": {"name": "V_N", "description": "V the N", "parameters": {"type": "object", "properties": {"N": {"type": "string"}, "N2": {"type": "integer"}}, "required": ["N"]}}}\n',
    '{"name": "V_N", "arguments": {"N": "N2", "limit": D}}\n',
    '{"role": "user", "content": "V the A N"}, {"role": "assistant", "content": "The N is A."}\n',
    "N:\n  - name: A-N\n    V: true\n    port: DD\n    image: \"N/N2:D.D\"\n",
    "# The A N\n\n* **V** the `N` (D)\n* V the *A* N, see [N](https://example.com/N/N2)\n\n| N | N2 |\n| --- | --- |\n| D | D |\n\n```\nV N\n```\n",
    "20DD-0D-1DT1D:DD:DDZ INFO N: V+d N=A count=DDD elapsed=D.Dms\n",
    "N_N2.V(A, D) == D; // V the N\n\n",
]
# The same few sentences in other languages, so that their scripts are not
# strangers to the vocabulary.
ELSEWHERE = [
    "Der Zug fährt morgen früh über die Brücke, und das Wetter wird schön. Können Sie mir bitte helfen?",
    "Le petit café près de la gare est déjà fermé; où pouvons-nous dîner ce soir ? C'est très agréable.",
    "La niña leyó el cuento mañana y noche. ¿Dónde está la biblioteca? ¡Qué día más bonito!",
    "O avô não sabe se amanhã há comboio. A informação está na página três.",
    "La città è più bella di sera, perché le luci si vedono sull'acqua.",
    "Собака спит у окна, а кошка смотрит на птиц. Какая сегодня погода?",
    "Το βιβλίο είναι πάνω στο τραπέζι. Πού είναι η θάλασσα;",
    "今天天气很好，我们去公园散步吧。请问图书馆在哪里？我想学习新的语言。",
    "明日は雨が降るでしょう。この本はとても面白いです。コーヒーをください。",
    "오늘은 날씨가 좋습니다. 도서관은 어디에 있습니까? 감사합니다.",
    "القطة تنام قرب النافذة. أين تقع المكتبة؟ شكرا جزيلا.",
    "आज मौसम अच्छा है। पुस्तकालय कहाँ है? धन्यवाद।",
    "Çocuk bahçede oynuyor, güneş ışığı çok güzel. Kütüphane nerede?",
    "Źle się czuję, więc zostanę w domu. Gdzie jest najbliższa apteka?",
    "Con mèo ngủ cạnh cửa sổ. Thư viện ở đâu?",
    "🙂 👍 🚀 ❤️ ✅ → ← ≤ ≥ ± × ÷ € £ ° … – — “ ” ‘ ’ « » • 👩‍💻 🇪🇺",
]


class Writer:
    """Fills shapes with words, the early ones of each list more often, as in real text."""

    def __init__(self, words: dict[str, list[str]]):
        self.words = words
        # Only random() is promised to give the same numbers in every Python.
        self.random = random.Random(20261).random

    def pick(self, seq):
        return seq[int(self.random() * len(seq))]

    def word(self, kind: str) -> str:
        seq = self.words[kind]
        return seq[int(self.random() ** 1.5 * len(seq))]

    def ending(self, word: str, mark: str) -> str:
        if mark == "d":
            return word + ("d" if word.endswith("e") else "ed")
        if word.endswith(("s", "sh", "ch", "x")):
            return word + "es"
        if word.endswith("y") and word[-2] not in "aeou":
            return word[:-1] + "ies"
        return word + "s"

    def fill(self, shape: str) -> str:
        kinds = {"N": "noun", "V": "verb", "A": "adjective", "R": "adverb", "P": "preposition", "E": "name", "O": "other"}
        out, i, alone = [], 0, lambda j: not 0 <= j < len(shape) or not (shape[j].isalpha() and shape[j].isascii())
        while i < len(shape):
            c = shape[i]
            if c == "D" and (alone(i - 1) or shape[i - 1] in "DT0123456789") and (alone(i + 1) or shape[i + 1] in "DTZm"):
                out.append(str(int(self.random() ** 3 * 100)) if alone(i - 1) and alone(i + 1) else str(int(self.random() * 10)))
            elif c in kinds and alone(i - 1) and (alone(i + 1) or shape[i + 1] == "2"):
                word = self.word(kinds[c])
                if shape[i + 1:i + 2] == "+":
                    word = self.ending(word, shape[i + 2])
                    i += 2
                elif shape[i + 1:i + 2] == "2":
                    i += 1
                out.append(word)
            else:
                out.append(c)
            i += 1
        return "".join(out)

    def sentence(self) -> str:
        text = self.fill(self.pick(SHAPES))
        return text[0].upper() + text[1:]

    def corpus(self):
        for n in range(SENTENCES):
            if n % 12 == 0:
                yield self.fill(self.pick(CODE))
            elif n % 12 == 5:
                yield self.fill(self.pick(DATA))
            elif n % 40 == 7:
                yield ELSEWHERE[n // 40 % len(ELSEWHERE)] + "\n"
            else:
                yield " ".join(self.sentence() for _ in range(3)) + self.pick(["\n", "\n\n", " "])


def read_words() -> dict[str, list[str]]:
    words, kind = {}, ""
    for line in (HERE / "words.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            kind = line.strip("[]")
            words[kind] = []
        elif not line.startswith("#"):
            words[kind] += [w for w in line.split() if w not in words[kind]]
    return words


def main() -> None:
    if __version__ != "0.23.2":
        sys.exit(f"make_model.py: tokenizers {__version__}, want 0.23.2")
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    out.mkdir(parents=True, exist_ok=True)
    words = read_words()
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tok.post_processor = processors.ByteLevel(add_prefix_space=False, use_regex=False, trim_offsets=False)
    tok.decoder = decoders.ByteLevel(add_prefix_space=False, use_regex=False)
    # Every word once, bare and after a blank, so that none of the list is unseen.
    text = [w + " " + w + "\n" for kind in words.values() for w in kind] + list(Writer(words).corpus())
    tok.train_from_iterator(text, trainers.BpeTrainer(
        vocab_size=ENTRIES, show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    tok.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in SPECIAL])
    tok.add_tokens([AddedToken(t, normalized=False, special=False) for t in MARKS])
    tok.save(str(out / "tokenizer.json"))
    added = json.loads(tok.to_str())["added_tokens"]
    config = {
        "add_bos_token": False,
        "added_tokens_decoder": {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in added},
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "model_max_length": 32768,
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": None,
    }
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    print(f"{tok.get_vocab_size()} entries from {sum(len(t.encode()) for t in text)} bytes of text")


main()
