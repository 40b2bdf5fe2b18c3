#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the tiny tokenizers of tests/data/tokenizers and their golden outputs.

Each folder is an ordinary Hugging Face directory, trained on the text below by the `tokenizers` package, with
golden.jsonl: {"text", "ids", "special"}, ids by the same package. "special" says that special tokens in the text were
parsed and added. Where there is a vocab.gguf, it is the same tokenizer.

    pip install tokenizers gguf
    tools/make_golden_tokenizers.py OUT_DIR
"""
import json
import os
import random
import sys

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXT = """
A tokenizer cuts text into pieces. It is trained once and then never changes: the same text always gives the same
tokens. I'm sure that you've seen them; they'll look odd, and it's fine. WE'RE shouting, don't worry!
The numbers 1, 12, 123, 1234 and 1,000,000.5 are cut in another way by each model. So are    blanks, 	tabs
and

empty lines.
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
Größe, façade, naïve, Zażółć gęślą jaźń; Привет, мир! Ελληνικά, עברית, العربية, हिन्दी, ไทย, 日本語のテキスト, 한국어, 中文分词。
"""

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
RANGES = [(0x20, 0x7E)] * 6 + [(0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x5FF), (0x600, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F),
          (0x2000, 0x206F), (0x2150, 0x218F), (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFF00, 0xFFEF),
          (0x1F300, 0x1F64F), (0x1D400, 0x1D7FF), (1, 0x1F), (0x80, 0x9F)]
FRAGMENTS = ["'s", "'LL", "'Ve", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n ", "12345", " the", "text", "...", "\u00a0", "\u3000",
             "e\u0301", "a\u0323\u0307", "\u1100\u1161\u11a8", "'\u017f", "\u212a", "\U0001f468\u200d\U0001f469", "\u2581", "\u180e"]


def make_texts(n, extra):
    random.seed(7)
    texts = ["", " ", "a", "Hello, world!", " Hello", "I'm you're WE'LL", "\n\n\nnew\r\nlines\t end  "] + TEXT.strip().split("\n")
    while len(texts) < n:
        text = ""
        for _ in range(random.randint(1, 9)):
            if random.random() < 0.5:
                text += random.choice(FRAGMENTS + extra)
            else:
                low, high = random.choice(RANGES)
                text += "".join(chr(random.randint(low, high)) for _ in range(random.randint(1, 4)))
        texts.append(text)
    return texts


def write_golden(folder, tokenizer, extra):
    with open(os.path.join(folder, "golden.jsonl"), "w") as f:
        for i, text in enumerate(make_texts(90, extra)):
            special = i % 2 == 1 or any(e in text for e in extra)
            if not special and tokenizer.encode(text).special_tokens_mask.count(1) > 1:
                continue
            ids = tokenizer.encode(text, add_special_tokens=special).ids
            f.write(json.dumps({"text": text, "ids": ids, "special": special}) + "\n")


def save(folder, tokenizer):
    compact = json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":"))
    with open(os.path.join(folder, "tokenizer.json"), "w") as f:
        f.write(compact + "\n")


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w") as f:
        json.dump(value, f, indent=1)
        f.write("\n")


def make_llama3(folder):
    """tokenizer.json with a Split expression, ignore_merges, BOS by the post-processor, added tokens of every kind."""
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(TEXT.split("\n"), trainers.BpeTrainer(
        vocab_size=420, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    t.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("<tool>box", normalized=False),
                  AddedToken("<left>", lstrip=True, normalized=False), AddedToken("<right>", rstrip=True, normalized=False),
                  AddedToken("alone", single_word=True, normalized=False)])
    bos = t.token_to_id("<|begin_of_text|>")
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
        special_tokens=[("<|begin_of_text|>", bos)])])
    save(folder, t)
    write_json(folder, "generation_config.json", {"bos_token_id": bos, "eos_token_id": [bos + 1, bos + 2]})
    write_json(folder, "tokenizer_config.json", {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>",
                                                 "chat_template": [{"name": "other", "template": "x"},
                                                                   {"name": "default", "template": "<|start_header_id|>"}]})
    write_golden(folder, t, ["<|eot_id|>", " <left> ", "\n<right>  ", "<tool>", "<tool>box", "alone", " alone ", "<|end_of_text|"])


def make_qwen2(folder):
    """tokenizer.json with NFC and no BOS."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3.replace("{1,3}", "")), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(TEXT.split("\n"), trainers.BpeTrainer(
        vocab_size=400, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    save(folder, t)
    write_json(folder, "tokenizer_config.json", {"add_bos_token": False, "bos_token": None, "eos_token": "<|im_end|>"})
    write_golden(folder, t, ["<|im_end|>", "<|im_start|>", "\u212b\u0323", "\u0958", "\uf900", "q\u0307\u0323"])


def make_opt(folder):
    """vocab.json and merges.txt; </s> is put first, as OPT does."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(TEXT.split("\n"), trainers.BpeTrainer(
        vocab_size=400, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>", "<pad>", "</s>", "<unk>"]))
    t.model.save(folder)
    t.post_processor = processors.TemplateProcessing(single="</s> $A", pair="</s> $A </s> $B", special_tokens=[("</s>", 2)])
    token = {"__type": "AddedToken", "content": "</s>", "lstrip": False, "normalized": True, "rstrip": False, "single_word": False}
    write_json(folder, "tokenizer_config.json", {"errors": "replace", "unk_token": token, "bos_token": token, "eos_token": token,
                                                 "pad_token": "<pad>", "add_prefix_space": False, "add_bos_token": True,
                                                 "tokenizer_class": "GPT2Tokenizer"})
    write_golden(folder, t, ["</s>", "<pad>"])


def make_smollm(folder):
    """Digits before ByteLevel."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(TEXT.split("\n"), trainers.BpeTrainer(
        vocab_size=380, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|endoftext|>"]))
    save(folder, t)
    write_golden(folder, t, ["<|endoftext|>", "\u00bd1\u2167"])


def make_llama2(folder):
    """SentencePiece written as tokenizer.json: byte fallback, blanks as U+2581 put by the normalizer."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    t.train_from_iterator(TEXT.split("\n"), trainers.BpeTrainer(
        vocab_size=560, show_progress=False, special_tokens=special, limit_alphabet=90))
    root = json.loads(t.to_str())
    root["added_tokens"] = root["added_tokens"][:3]
    root["pre_tokenizer"] = None
    t = Tokenizer.from_str(json.dumps(root))
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    save(folder, t)
    write_json(folder, "tokenizer_config.json", {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True})
    write_golden(folder, t, ["</s>", " <s>"])


def write_gguf(folder, tokenizer, shown):
    """As llama.cpp's converter writes Gemma 4, but without the BOS, as in the first such files."""
    root = json.loads(tokenizer.to_str())
    special = {token["content"] for token in root["added_tokens"]}
    types = gguf.TokenType
    texts = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    w = gguf.GGUFWriter(os.path.join(folder, "vocab.gguf"), "gemma4")
    w.add_tokenizer_model("gemma4")
    w.add_token_list(texts)
    w.add_token_types([types.USER_DEFINED if t in shown else types.CONTROL if t in special else
                       types.BYTE if t.startswith("<0x") else types.NORMAL for t in texts])
    w.add_token_merges([" ".join(merge) for merge in root["model"]["merges"]])
    w.add_eos_token_id(1)
    w.add_bos_token_id(2)
    w.add_unk_token_id(3)
    w.add_add_bos_token(False)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def make_gemma4(folder):
    """Blanks written by the normalizer, none first, byte fallback, tokens over blanks and of newlines; also as GGUF."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Replace(" ", "\u2581")
    t.pre_tokenizer = pre_tokenizers.Split(Regex("\n+|\u2581*[^\u2581\n]+\u2581?[^\u2581\n]*|\u2581+"), "isolated")
    shown = ["<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", "<|\"|>", "<|channel>", "<channel|>"]
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<|tool>", "<tool|>"] + shown + ["<|think|>", "<|turn>", "<turn|>"]
    t.train_from_iterator([TEXT] * 2 + ["\n" * 9], trainers.BpeTrainer(
        vocab_size=580, show_progress=False, special_tokens=special + [f"<0x{b:02X}>" for b in range(256)], limit_alphabet=90))
    root = json.loads(t.to_str())
    root["added_tokens"] = root["added_tokens"][:len(special)]
    root["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    root["decoder"] = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                                                        {"type": "ByteFallback"}, {"type": "Fuse"}]}
    t = Tokenizer.from_str(json.dumps(root))
    t.post_processor = processors.TemplateProcessing(single="<bos> $A", pair="<bos> $A <bos> $B", special_tokens=[("<bos>", 2)])
    save(folder, t)
    write_json(folder, "tokenizer_config.json", {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"})
    write_gguf(folder, t, shown)
    write_golden(folder, t, special[4:] + ["\n" * 5, "\n" * 12, " " * 7, "\n \n", "s t"])


def main():
    for make in make_llama3, make_qwen2, make_opt, make_smollm, make_llama2, make_gemma4:
        folder = os.path.join(sys.argv[1], make.__name__[5:])
        os.makedirs(folder, exist_ok=True)
        make(folder)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
