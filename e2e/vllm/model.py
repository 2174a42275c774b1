"""Writes a Qwen3 model with two tiny layers of random weights and a real tokenizer.

usage: model.py TOKENIZER OUT

What it answers means nothing: token ids, KV events and cached-token counts are those of any model of that kind.
"""
import pathlib
import shutil
import sys

from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

tokenizer, out = map(pathlib.Path, sys.argv[1:])
config = AutoConfig.for_model(
    "qwen3", hidden_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
    head_dim=32,  # vLLM's attention on the CPU takes multiples of 32
    intermediate_size=128, max_position_embeddings=8192, tie_word_embeddings=True,
    vocab_size=(len(AutoTokenizer.from_pretrained(tokenizer)) + 63) // 64 * 64)
AutoModelForCausalLM.from_config(config).save_pretrained(out)
for file in tokenizer.iterdir():
    shutil.copy(file, out)
