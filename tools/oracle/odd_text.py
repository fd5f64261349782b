"""Texts that tokenizers get wrong; shared by the tokenizer oracles. Deterministic."""

import random

FIXED = [
    "", " ", "  ", "   ", "\t", "\n", "\n\n", "\n\n\n", "\r\n", "\r\n\r\n", " \n", "\n ", " \n \n", "\t\n\t", "a\n\nb", "a \n b",
    "Hello world", " Hello world", "Hello  world", "Hello   world  ", "Hello, world!", "HELLO WORLD", "hElLo", "end of line \n",
    "I'm you're he'll we've it's don't I'd", "I'M YOU'RE HE'LL WE'VE IT'S DON'T I'D", "'s't're", "l'été d'Anne", "'\u017f",
    "1", "12", "123", "1234", "12345", "1234567", "3.14159", "1,000,000", "0x1F", "v1.2.3", "\u0661\u0662\u0663\u0664", "\u00b2\u00b3", "x1y22z333",
    "fn main() {\n    println!(\"{}\", 1 + 2);\n}\n", "\tif (a == b) {\n\t\treturn;\n\t}", "def f(x):\n        return x ** 2  # ok\n",
    "<html><body class=\"a\">&amp;</body></html>", "https://example.com/a?b=c&d=%20e#f", "C:\\Users\\me", "a/b/c", "!!!???...", "--==--",
    "$100 \u20ac50 \u00a320", "a+b=c", "(a)[b]{c}", "#hashtag @user", "`code` **bold** _it_", "...\n...", "\\n is not \n",
    "caf\u00e9 na\u00efve", "cafe\u0301", "\u00c5\u212b", "\ufb01ne", "\u0130stanbul", "Stra\u00dfe", "\u01c5\u01c6", "\u0391\u03b8\u03ae\u03bd\u03b1", "\u041c\u043e\u0441\u043a\u0432\u0430",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645", "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd", "\u202bRTL\u202c mark",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01", "\u4eca\u65e5\u306f\u826f\u3044\u5929\u6c17\u3067\u3059\u306d\u3002", "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4", "\u30ab\u30bf\u30ab\u30ca", "\U00020000\U0002a6d6", "\u3000ideographic\u3000space",
    "\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f44d\U0001f3fd", "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7", "\u2764\ufe0f", "a\U0001f999b", " \U0001f999", "\U0001f999 ",
    "a\u00a0b", "a\u200bb", "a\u2028b\u2029c", "\ufeffbom", "\u0085next", "a\u0000b", "\u0001\u0002\u001b[0m", "\u007f", "\ufffd", "\U0010ffff", "\ue000",
    "\u0300\u0301", "e\u0301\u0302\u0303", "Z\u0351\u036b\u0343a\u0335l\u0321g\u0489o", "\u2581", "\u2581a \u2581 b", "\u0120the", "\u010a", "<0x0A>", "<0xFF>",
    "<s>", "</s>", "<unk>", "<|im_start|>user\nhi<|im_end|>\n", "<|endoftext|>", "<start_of_turn>model\n", "<bos>x<eos>", "a<|im_end|> b",
    "<|im_end", "<|im_end|", "<pad>", "[PAD]", "<mask>", "<b>", "<h1>x</h1>", "</table>", "<unused0>", "<unused10>",
    "3 apples", " 33", "\t3", "a1 b2", "1st 2nd 3rd", "CamelCaseWordsHere", "snake_case_here", "kebab-case", "MixedUP-case_10x",
]
LONG = [[" ", 300], [" ", 4097], ["\n", 130], ["\t", 77], ["a", 1000], ["=", 513], ["ab ", 400], ["\U0001f999", 70], ["\u4f60", 200], [" \n", 60]]


def random_texts(n, seed=7):
    """Mixtures over ranges of every kind of character."""
    rng = random.Random(seed)
    ranges = [(32, 126)] * 6 + [(9, 13), (32, 32), (0xA0, 0x17F), (0x300, 0x36F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0x97F),
              (0xE00, 0xE7F), (0x2000, 0x206F), (0x2190, 0x22FF), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x1F300, 0x1F6FF)]
    texts = []
    for _ in range(n):
        parts = []
        while len(parts) < rng.randint(1, 40):
            low, high = rng.choice(ranges)
            parts += [chr(rng.randint(low, high)) for _ in range(rng.randint(1, 6))]
        texts.append("".join(parts))
    return texts


def texts():
    """All texts: strings, or [unit, count] for a repeated one."""
    return FIXED + LONG + random_texts(150)


def expand(text):
    return text if isinstance(text, str) else text[0] * text[1]
