// SPDX-License-Identifier: Apache-2.0
#include "train/behaviour.h"

#include "train/judged.h"

namespace bespoke {

namespace {

class ChosenRows : public RowSource {
 public:
  ChosenRows(std::unique_ptr<RowSource> all, std::vector<RowPlace> chosen) : all_(std::move(all)), chosen_(std::move(chosen)) {}
  size_t size() const override { return chosen_.size(); }
  size_t length(size_t row) const override { return all_->length(of(row)); }
  void read(size_t row, Row& into) const override { all_->read(of(row), into); }

 private:
  size_t of(size_t row) const { return static_cast<size_t>(chosen_.at(row).example); }

  std::unique_ptr<RowSource> all_;
  std::vector<RowPlace> chosen_;
};

}  // namespace

BehaviourSample behaviour_sample(Bundle& bundle) {
  const std::optional<std::string>& name = bundle.manifest().data_behaviour;
  if (!name) return {};
  std::unique_ptr<RowSource> all = bundle_rows(bundle, name);
  std::vector<RowPlace> places;
  for (size_t row = 0; row < all->size(); row++) places.push_back({static_cast<int64_t>(row), 0, static_cast<int32_t>(all->length(row))});
  std::vector<RowPlace> chosen = judged_rows(places);
  const int64_t tokens = predicted(chosen);
  return {std::make_unique<ChosenRows>(std::move(all), std::move(chosen)), tokens};
}

}  // namespace bespoke
