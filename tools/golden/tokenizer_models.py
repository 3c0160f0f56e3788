"""Kinds of tokenizers for tokenizer_oracle.py whose model is not a byte-level or SentencePiece BPE."""

import base64
import io
import json
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import processors, trainers

SPACE = "▁"
BERT_SPECIALS = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# Rules of a map of characters: more than one character, a shorter one that they begin with, and
# a character that goes away.
RULES = [("\r", " "), ("\t", " "), ("\n", " "), ("\u3000", " "), ("\ufb01", "fi"), ("\u00bd", "1/2"),
         ("e\u0301", "\u00e9"), ("Q", "K"), ("Q\u0301", "\u1e30"), ("\u200b", ""),
         ("\uff71", "\u30a2"), ("\u0301", "'")]


def charsmap():
    """SentencePiece's map of RULES, in base64."""
    import sentencepiece
    rules = "".join(
        "{}\t{}\n".format(*(" ".join(f"{ord(c):X}" for c in side) for side in rule))
        for rule in RULES)
    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        file.write(rules)
        file.flush()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["a b c d e f g"] * 20), model_writer=model, vocab_size=12,
            normalization_rule_tsv=file.name, minloglevel=2)
    charsmap_bytes = field(field(model.getvalue(), 3), 2)
    return base64.b64encode(charsmap_bytes).decode()


def field(message, wanted):
    """The bytes of the first field of this number in a protocol buffer."""
    def varint(at):
        value = shift = 0
        while True:
            value |= (message[at] & 0x7F) << shift
            shift += 7
            at += 1
            if message[at - 1] < 0x80:
                return value, at

    at = 0
    while True:
        key, at = varint(at)
        kind = key & 7
        size, start = varint(at) if kind in (0, 2) else ({1: 8, 5: 4}[kind], at)
        if key >> 3 == wanted:
            return message[start:start + size]
        at = start if kind == 0 else start + size


def words_of(text, trainer, model, **parts):
    """A tokenizer trained on the lines of `text`; `parts` are its attributes."""
    tokenizer = Tokenizer(model)
    for name in ("normalizer", "pre_tokenizer"):
        if name in parts:
            setattr(tokenizer, name, parts[name])
    tokenizer.train_from_iterator(text.splitlines(), trainer)
    for name in ("decoder", "post_processor"):
        if name in parts:
            setattr(tokenizer, name, parts[name])
    return tokenizer


def word_piece_trainer():
    return trainers.WordPieceTrainer(vocab_size=500, special_tokens=BERT_SPECIALS,
                                     limit_alphabet=150, show_progress=False)


def bert(text):
    tokenizer = words_of(
        text, word_piece_trainer(), models.WordPiece(unk_token="[UNK]"),
        normalizer=normalizers.BertNormalizer(), pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
        decoder=decoders.WordPiece(),
        post_processor=processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1)))
    tokenizer.add_special_tokens([AddedToken("[MASK]", lstrip=True)])
    return tokenizer.to_str()


def word_piece(text):
    """What BERT does not have: case, accents, long words that are unknown."""
    tokenizer = words_of(
        text, word_piece_trainer(), models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=9),
        normalizer=normalizers.Sequence([normalizers.Nmt(), normalizers.StripAccents()]),
        pre_tokenizer=pre_tokenizers.Whitespace(),
        decoder=decoders.WordPiece(cleanup=False))
    data = json.loads(tokenizer.to_str())
    data["model"]["max_input_chars_per_word"] = 9  # which the trainer forgets
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def word_level(text):
    tokenizer = words_of(
        text, trainers.WordLevelTrainer(vocab_size=300, special_tokens=["<unk>"], show_progress=False),
        models.WordLevel(unk_token="<unk>"),
        normalizer=normalizers.BertNormalizer(strip_accents=False, lowercase=False),
        pre_tokenizer=pre_tokenizers.Sequence([
            pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("contiguous"),
            pre_tokenizers.CharDelimiterSplit("o")]))
    return tokenizer.to_str()


def unigram_trainer(size):
    return trainers.UnigramTrainer(vocab_size=size, unk_token="<unk>", show_progress=False,
                                   special_tokens=["<pad>", "</s>", "<unk>"])


def unigram(text):
    """As T5's."""
    data = json.loads(words_of(
        text, unigram_trainer(400), models.Unigram(), decoder=decoders.Metaspace(),
        pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(),
                                               pre_tokenizers.Metaspace()]),
        post_processor=processors.TemplateProcessing(
            single="$A </s>", special_tokens=[("</s>", 1)])).to_str())
    data["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "Precompiled", "precompiled_charsmap": charsmap()},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]}
    # A piece of characters that are unknown each: the library finds it when they stand together.
    data["model"]["vocab"].append(["ЖЩ", -90.0])
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def unigram_bytes(text):
    """Bytes for unknown characters, and one piece across words."""
    latin = "".join(c for c in text if ord(c) < 0x80)
    data = json.loads(words_of(
        latin, unigram_trainer(300), models.Unigram(),
        normalizer=normalizers.Replace(" ", SPACE),
        decoder=decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(),
                                   decoders.Fuse()])).to_str())
    # So unlikely that text which spells one is text.
    data["model"]["vocab"] += [[f"<0x{byte:02X}>", -90.0] for byte in range(256)]
    data["model"]["byte_fallback"] = True
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def clip(text):
    """The last character of a word has tokens of its own."""
    tokenizer = words_of(
        text, trainers.BpeTrainer(vocab_size=800, end_of_word_suffix="</w>", show_progress=False,
                                  special_tokens=["<|startoftext|>", "<|endoftext|>"]),
        models.BPE(end_of_word_suffix="</w>"),
        normalizer=normalizers.Lowercase(), pre_tokenizer=pre_tokenizers.ByteLevel(False),
        decoder=decoders.ByteLevel(),
        post_processor=processors.RobertaProcessing(("<|endoftext|>", 1), ("<|startoftext|>", 0)))
    data = json.loads(tokenizer.to_str())
    vocab = data["model"]["vocab"]
    for suffix in ("", "</w>"):
        for c in sorted(pre_tokenizers.ByteLevel.alphabet()):
            vocab.setdefault(c + suffix, len(vocab))
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def prefix_bpe(text):
    """Characters inside a word have tokens of their own."""
    return words_of(
        text, trainers.BpeTrainer(vocab_size=500, continuing_subword_prefix="##", limit_alphabet=150,
                                  special_tokens=["[UNK]"], show_progress=False),
        models.BPE(unk_token="[UNK]", continuing_subword_prefix="##", fuse_unk=True),
        pre_tokenizer=pre_tokenizers.Whitespace(), decoder=decoders.WordPiece()).to_str()


def byte_first(text):
    """Steps after ByteLevel see its spelling."""
    return words_of(
        text, trainers.BpeTrainer(vocab_size=500, show_progress=False, special_tokens=["<s>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet()),
        models.BPE(), decoder=decoders.ByteLevel(),
        pre_tokenizer=pre_tokenizers.Sequence([
            pre_tokenizers.Digits(), pre_tokenizers.ByteLevel(True),
            pre_tokenizers.Split("e", "merged_with_previous")])).to_str()


def byte_normalizer(text):
    tokenizer = words_of(
        text, trainers.BpeTrainer(vocab_size=500, show_progress=False, special_tokens=["<s>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet()),
        models.BPE(), decoder=decoders.ByteLevel(),
        normalizer=normalizers.Sequence([normalizers.NFC(), normalizers.ByteLevel()]),
        pre_tokenizer=pre_tokenizers.Split("\u0120", "merged_with_next"))
    tokenizer.add_tokens([AddedToken("the Lord", normalized=True)])
    return tokenizer.to_str()


def byte_words(text):
    return words_of(
        text, word_piece_trainer(), models.WordPiece(unk_token="[UNK]"),
        pre_tokenizer=pre_tokenizers.ByteLevel(False),
        decoder=decoders.WordPiece()).to_str()


def scripts(text):
    return words_of(
        text, trainers.BpeTrainer(vocab_size=500, limit_alphabet=150, special_tokens=["[UNK]"],
                                  show_progress=False),
        models.BPE(unk_token="[UNK]", fuse_unk=True), decoder=decoders.Fuse(),
        pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.UnicodeScripts(),
                                               pre_tokenizers.FixedLength(7)])).to_str()


def word_ends(text):
    """As GPT's first."""
    return words_of(
        text, trainers.BpeTrainer(vocab_size=500, end_of_word_suffix="</w>", limit_alphabet=150,
                                  special_tokens=["<unk>"], show_progress=False),
        models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"),
        normalizer=normalizers.BertNormalizer(), pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
        decoder=decoders.BPEDecoder("</w>")).to_str()


def ctc(text):
    """Letters, of which neighbours that are the same are one."""
    return words_of(
        text, trainers.WordLevelTrainer(vocab_size=120, special_tokens=["<pad>", "<unk>"],
                                        show_progress=False),
        models.WordLevel(unk_token="<unk>"), normalizer=normalizers.Replace(" ", "|"),
        pre_tokenizer=pre_tokenizers.FixedLength(1), decoder=decoders.CTC()).to_str()


def token_steps(text):
    """What is done to each token by itself."""
    return words_of(
        text, trainers.BpeTrainer(vocab_size=500, limit_alphabet=150, special_tokens=["<unk>"],
                                  show_progress=False),
        models.BPE(unk_token="<unk>"), pre_tokenizer=pre_tokenizers.Metaspace(),
        decoder=decoders.Sequence([
            decoders.Replace(Regex("[0-9]+|th"), "#"), decoders.Strip("e", 0, 1),
            decoders.Strip(SPACE, 1, 0), decoders.Metaspace(), decoders.Fuse()])).to_str()


MODELS = {f.__name__: f for f in (
    bert, word_piece, word_level, unigram, unigram_bytes, clip, prefix_bpe,
    byte_first, byte_normalizer, byte_words,
    scripts, word_ends, ctc, token_steps)}
