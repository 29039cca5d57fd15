# SPDX-License-Identifier: Apache-2.0
"""Makes a tiny Llama with random weights and a byte-level tokenizer: nothing is fetched.
Usage: model.py DIRECTORY"""

import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

directory = sys.argv[1]
torch.manual_seed(7)
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(
    vocab_size=400, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
)
tokenizer.train_from_iterator(["the quick brown fox jumps over the lazy dog"] * 50, trainer)
PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(directory)
config = LlamaConfig(
    vocab_size=512,
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    max_position_embeddings=8192,
    bos_token_id=0,
    eos_token_id=1,
)
LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(directory)
