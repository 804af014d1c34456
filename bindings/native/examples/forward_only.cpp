// SPDX-License-Identifier: Apache-2.0
// An app without the device core trains by calls of `forward` alone, with ExecuTorch's own runtime: a program that
// bespoke_plugins.targets.executorch.forward_only wrote keeps both sides of B, and this hands g from one call to the next.
//
//   forward_only step.pte rows.bin 20 1e-3 b.bin
//
// rows.bin: int64, rows of one token more than the program's sequences. b.bin: float32, the trained pieces one after the other.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

using executorch::aten::Tensor;
using executorch::extension::from_blob;
using executorch::extension::Module;
using executorch::runtime::Error;
using executorch::runtime::EValue;

static void fail(const char* what, Error error = Error::Ok) {
  std::fprintf(stderr, "%s (ExecuTorch error %d)\n", what, static_cast<int>(error));
  std::exit(1);
}

int main(int argc, char** argv) {
  if (argc != 6) fail("usage: forward_only PROGRAM ROWS STEPS RATE OUT");
  // One arena for both methods, since what `forward` leaves in the buffers is what `finish` reads.
  Module module(argv[1], Module::LoadMode::File, nullptr, nullptr, nullptr, true);
  const auto meta = module.method_meta("forward");
  if (!meta.ok()) fail("no program with a method 'forward'", meta.error());
  const auto batch_meta = meta->input_tensor_meta(0), queries_meta = meta->input_tensor_meta(3);
  if (!batch_meta.ok() || !queries_meta.ok()) fail("not a program of write_forward_only");
  const int32_t rows = batch_meta->sizes()[0], length = batch_meta->sizes()[1], queries = queries_meta->sizes()[0];

  std::vector<int64_t> all;
  std::FILE* file = std::fopen(argv[2], "rb");
  if (!file) fail("no file of rows");
  for (int64_t token; std::fread(&token, sizeof token, 1, file) == 1;) all.push_back(token);
  std::fclose(file);
  const size_t count = all.size() / static_cast<size_t>(length + 1);
  if (!count) fail("no whole row of tokens");

  std::vector<int64_t> tokens(static_cast<size_t>(rows * length)), targets(tokens.size());
  std::vector<float> mask(tokens.size(), 1.0f), g(static_cast<size_t>(queries), 0.0f), rate(1, 0.0f), begun(1, 0.0f);
  int64_t seed = 7, step = 1;
  const auto token_tensor = from_blob(tokens.data(), {rows, length}, executorch::aten::ScalarType::Long);
  const auto target_tensor = from_blob(targets.data(), {rows, length}, executorch::aten::ScalarType::Long);
  const auto mask_tensor = from_blob(mask.data(), {rows, length});
  const auto g_tensor = from_blob(g.data(), {queries}), rate_tensor = from_blob(rate.data(), {1});
  const auto begun_tensor = from_blob(begun.data(), {1});
  const auto seed_tensor = from_blob(&seed, {1}, executorch::aten::ScalarType::Long);
  const auto step_tensor = from_blob(&step, {1}, executorch::aten::ScalarType::Long);

  for (const int64_t steps = std::atoll(argv[3]); step <= steps; step++) {
    for (int32_t row = 0; row < rows; row++) {
      const int64_t* from = all.data() + static_cast<size_t>((step - 1) * rows + row) % count * static_cast<size_t>(length + 1);
      for (int32_t at = 0; at < length; at++) {
        tokens[static_cast<size_t>(row * length + at)] = from[at];
        targets[static_cast<size_t>(row * length + at)] = from[at + 1];
      }
    }
    const auto given = module.execute(
        "forward", {token_tensor, target_tensor, mask_tensor, g_tensor, rate_tensor, begun_tensor, seed_tensor, step_tensor});
    if (!given.ok()) fail("a call of 'forward' failed", given.error());
    const Tensor &loss = given->at(0).toTensor(), &found = given->at(1).toTensor();
    for (int32_t query = 0; query < queries; query++) g[static_cast<size_t>(query)] = found.const_data_ptr<float>()[query];
    rate[0] = static_cast<float>(std::atof(argv[4]));  // what this g is multiplied by, in the next call
    begun[0] = 1.0f;
    std::printf("step %lld  loss %.6f\n", static_cast<long long>(step), *loss.const_data_ptr<float>());
  }

  // B with the update of the last step, which no call has made yet.
  const auto pieces = module.execute("finish", {g_tensor, rate_tensor});
  if (!pieces.ok()) fail("a call of 'finish' failed", pieces.error());
  std::FILE* out = std::fopen(argv[5], "wb");
  if (!out) fail("the file of B cannot be written");
  for (const EValue& piece : *pieces) {
    const auto size = static_cast<size_t>(piece.toTensor().numel());
    if (std::fwrite(piece.toTensor().const_data_ptr<float>(), sizeof(float), size, out) != size) fail("the file of B cannot be written");
  }
  return std::fclose(out);
}
