// SPDX-License-Identifier: Apache-2.0
#include "format/adapter/gguf.h"

#include <cstring>
#include <map>

#include "format/whole_folder.h"

namespace bespoke {

namespace {

constexpr const char* kFile = "adapter.gguf";
constexpr size_t kAlignment = 32;
constexpr uint32_t kVersion = 3, kFloat32 = 0;        // of ggml's types
enum : uint32_t { kFloatValue = 6, kTextValue = 8 };  // of GGUF's

const std::map<std::string, std::string> kArchitectures = {// our families by llama.cpp's names
                                                           {"llama", "llama"},
                                                           {"qwen2", "qwen2"},
                                                           {"qwen3", "qwen3"},
                                                           {"gemma3_text", "gemma3"}};
const std::map<std::string, std::string> kLinears = {{"q_proj", "attn_q"},      {"k_proj", "attn_k"},      {"v_proj", "attn_v"},
                                                     {"o_proj", "attn_output"}, {"gate_proj", "ffn_gate"}, {"up_proj", "ffn_up"},
                                                     {"down_proj", "ffn_down"}};

class Header {
 public:
  template <class Number>
  Header& number(Number value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);  // processors that store the lowest byte first, as GGUF does
    text_.append(bytes, sizeof bytes);
    return *this;
  }
  Header& text(const std::string& value) {
    number(static_cast<uint64_t>(value.size()));
    text_ += value;
    return *this;
  }
  Header& setting(const std::string& key, const std::string& value) { return text(key).number(uint32_t{kTextValue}).text(value); }
  Header& setting(const std::string& key, float value) { return text(key).number(uint32_t{kFloatValue}).number(value); }
  Header& raw(const void* data, size_t size) {
    text_.append(static_cast<const char*>(data), size);
    return *this;
  }
  Bytes all() const { return bytes_of(text_); }

 private:
  std::string text_;
};

size_t aligned(size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

void write_aligned(WholeFolder::File& file, Bytes bytes) {
  constexpr uint8_t zeros[kAlignment] = {};
  file.write(bytes);
  file.write({zeros, aligned(bytes.size) - bytes.size});
}

// Of each head the rows 0, half, 1, half + 1, ...
std::vector<uint8_t> rows_in_turn(const Tensor& tensor, int64_t heads) {
  const int64_t rows = tensor.shape[0] / heads;
  const size_t row_bytes = tensor.size / static_cast<size_t>(tensor.shape[0]);
  std::vector<uint8_t> bytes;
  for (int64_t head = 0; head < heads; head++)
    for (int64_t place = 0; place < rows; place++) {
      const uint8_t* row = tensor.data + static_cast<size_t>(head * rows + place / 2 + place % 2 * (rows / 2)) * row_bytes;
      bytes.insert(bytes.end(), row, row + row_bytes);
    }
  return bytes;
}

}  // namespace

void write_gguf(const std::string& folder, const Tensors& adapter, const Manifest& manifest, const Tensors& initial) {
  const auto architecture = kArchitectures.find(manifest.family);
  if (architecture == kArchitectures.end())
    throw Error(Kind::Unsupported, "format 'gguf'", "a model of the family " + manifest.family, "llama, qwen2, qwen3 or gemma3_text",
                "Export it as 'peft'");
  const std::vector<AdapterPiece> pieces = pieces_of(adapter, initial, manifest);
  Header header;
  header.raw("GGUF", 4).number(kVersion).number(static_cast<uint64_t>(pieces.size())).number(uint64_t{5});
  header.setting("general.type", "adapter").setting("general.architecture", architecture->second);
  header.setting("general.name", manifest.model_name);
  header.setting("adapter.type", "lora").setting("adapter.lora.alpha", static_cast<float>(manifest.lora_alpha));
  size_t offset = 0;
  for (const AdapterPiece& piece : pieces) {
    header.text("blk." + std::to_string(piece.block) + "." + kLinears.at(piece.linear) + ".weight." + (piece.is_a() ? "lora_a" : "lora_b"));
    header.number(uint32_t{2}).number(static_cast<uint64_t>(piece.tensor->shape[1])).number(static_cast<uint64_t>(piece.tensor->shape[0]));
    header.number(uint32_t{kFloat32}).number(static_cast<uint64_t>(offset));
    offset += aligned(piece.tensor->size);
  }
  WholeFolder whole(folder, Kind::Adapter, WholeFolder::Readers::owner, replaces_only({kFile}));
  WholeFolder::File file = whole.create(kFile);
  write_aligned(file, header.all());
  for (const AdapterPiece& piece : pieces) {
    const Tensor& tensor = *piece.tensor;
    std::vector<uint8_t> turned;
    if (manifest.family == "llama" && !piece.is_a() && (piece.linear == "q_proj" || piece.linear == "k_proj"))
      turned = rows_in_turn(tensor, piece.linear == "q_proj" ? manifest.num_heads : manifest.num_kv_heads);
    write_aligned(file, turned.empty() ? Bytes{tensor.data, tensor.size} : Bytes{turned.data(), turned.size()});
  }
  file.finish();
  whole.finish();
}

}  // namespace bespoke
