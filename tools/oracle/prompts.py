"""The prompts of the token fixtures and the strings of the tokenizer fixtures. Our own words, but for Moby Dick."""

MOBY_PARAGRAPH = "\n\n"


def moby_part(moby, first, last):
    return MOBY_PARAGRAPH.join(moby.rstrip("\n").split(MOBY_PARAGRAPH)[first:last])


CODE_RUST = '''/// Returns the index of `needle` in the sorted slice, or the place where it would go.
pub fn binary_search(haystack: &[u32], needle: u32) -> Result<usize, usize> {
    let (mut low, mut high) = (0, haystack.len());
    while low < high {
'''

CODE_PYTHON = '''import csv
from collections import defaultdict


def totals_by_month(path):
    """Sum the `amount` column of a CSV file for each month of the `date` column (YYYY-MM-DD)."""
'''

PLAIN = {
    "short": "The capital of France is",
    "short_water": "Water boils at a temperature of",
    "short_tale": "Once upon a time, there was a little",
    "english": "In 1969, the Apollo 11 mission didn't just land on the Moon; it brought back 21.5 kg of rock. The",
    "german": "Die Geschichte der Stadt Köln beginnt vor mehr als zweitausend Jahren. Die Römer",
    "chinese": "中国的首都是北京。北京有三千多年的历史,",
    "french": "Pour préparer une bonne soupe à l’oignon, il faut d'abord",
    "code_rust": CODE_RUST,
    "code_python": CODE_PYTHON,
}

# name: messages; rendered with the file's own chat template and add_generation_prompt
CHAT = {
    "chat": [{"role": "user", "content": "What is the capital of France?"}],
    "chat_turns": [
        {"role": "system", "content": "You are a patient teacher. Answer in two short paragraphs."},
        {"role": "user", "content": "Why is the sky blue?"},
        {"role": "assistant", "content": "Because air scatters blue light more than red light."},
        {"role": "user", "content": "And why are sunsets red, then?\nPlease give an example."},
    ],
}


def long_prompts(moby, is_chat):
    """Two prompts of more than 600 tokens."""
    first, second = moby_part(moby, 5, 7), moby_part(moby, 8, 12)
    chat = {}
    plain = {"long_moby": first}
    if is_chat:
        question = "Here is a passage from a novel.\n\n" + second + "\n\nWhat does the narrator say about money?"
        chat["long_chat"] = [{"role": "user", "content": question}]
    else:
        plain["long_moby_second"] = second
    return plain, chat


# text, parse_special; each is tokenised with add_special off and on
TOKENIZER = [
    ("", False),
    (" ", False),
    ("   leading and trailing   ", False),
    ("a\n\n\n b\t\tc\r\n  d", False),
    ("1234567890 3.14159 1,000,000 0x7fff", False),
    ("don't I'll WE'RE they’ve", False),
    ("naïve café Ångström ÀÉÎ e\u0301", False),
    ("日本語のテキストと한국어 텍스트", False),
    ("مرحبا بالعالم שלום नमस्ते", False),
    ("👩‍👩‍👧‍👦 🇫🇷 🙂\u200b\ufeffx", False),
    ("if (x==0) { return !y; } // <= >= != -> =>", False),
    ("camelCaseHTTPServer snake_case_name __init__", False),
    ("\u0000\u0001\u007f\u0085\u00a0\u2028", False),
    ("<|im_start|>user\nhi<|im_end|><bos><eos><start_of_turn>", False),
    ("<|im_start|>user\nhi<|im_end|><bos><eos><start_of_turn>", True),
    ("▁spaces▁ and <0x0A> <unk> </s>", True),
]
