// SPDX-License-Identifier: Apache-2.0
// Insertions of fuzz/execute.cpp: a new value, made, used and freed in a sound plan. Of a kind that the table allows, the plan stays
// sound; of any other it must be refused, and where a rule is out of force, what it is for shows when the plan runs.
#include <algorithm>

#include "execute_edit.h"

using namespace bespoke;

namespace fuzz {

namespace {

const char* dtype_name(DType dtype) { return kDTypeNames[static_cast<size_t>(dtype)]; }

std::string graph_of(const char* what, DType dtype, int rank) {
  return std::string(what) + "_" + dtype_name(dtype) + "_" + std::to_string(rank);
}

// Sections where the runtime gives values of this kind.
std::vector<Section> sections_for(const Allowed& kind) {
  if (kind.lifetime == Lifetime::step)
    return {Section::micro_step, Section::apply_step, Section::federated_measure, Section::federated_project};
  if (kind.role == Role::received) return {Section::federated_measure, Section::federated_apply};
  if (kind.lifetime == Lifetime::session) return {Section::prefill, Section::decode, Section::decode_rows};
  if (kind.role == Role::scalar && kind.dtype == DType::int64) return {Section::prefill, Section::decode, Section::decode_rows};
  if (kind.role == Role::scalar) return {Section::train_step, Section::micro_step, Section::apply_step};
  if (kind.role == Role::batch) return {Section::train_step, Section::micro_step, Section::evaluate_step, Section::federated_measure};
  std::vector<Section> sections = {Section::train_step,    Section::micro_step, Section::apply_step, Section::finish,
                                   Section::evaluate_step, Section::prefill,    Section::decode,     Section::decode_rows};
  if (kind.role == Role::weight || kind.role == Role::optimizer) return sections;
  sections.insert(sections.end(), {Section::federated_measure, Section::federated_project, Section::federated_apply});
  return sections;
}

// A new value used in as many ways as its kind has.
class Insertion {
 public:
  Insertion(Case& one, const Corpus& corpus, Random& random) : random_(random), edit_(one, corpus, random) {}

  bool insert(const Allowed& kind, int rank) {
    if (!edit_.enter(sections_for(kind))) return false;
    const uint32_t id = value_of(kind, rank);
    if (id == kNothing) return false;
    const bool whole = shape_is_library(id);
    if (kind.role == Role::weight) edit_.load("extra");
    if (kind.lifetime == Lifetime::section) define(id, kind, rank);
    if (whole && kind.lifetime != Lifetime::section && writable(kind))
      edit_.call(graph_of("make", kind.dtype, rank), {}, {{id, How::into}});
    if (whole && random_(2)) edit_.call(graph_of("take", kind.dtype, rank), {Reference{id}}, {});
    if (whole && rank > 0 && random_(2)) edit_.call(graph_of("half", kind.dtype, rank), {half(id)}, {});
    if (kind.role == Role::batch && rank == 2) edit_.call(copies_graph(id), {Reference{id}}, {});
    if (kind.role == Role::constant && rank == 0) place_by(id);
    if (whole && kind.dtype == DType::float32 && writable(kind) && random_(2))
      edit_.call(graph_of("make", kind.dtype, rank), {}, {{id, How::add_to}});
    if (kind.dtype == DType::float32 && random_(2)) edit_.emit(id, "extra");
    if (kind.role == Role::optimizer && edit_.stores(kind.role)) store(id, rank);
    if (kind.lifetime == Lifetime::section) edit_.free(id);
    if (kind.role == Role::weight) edit_.free_group("extra");
    return true;
  }

  // Uses of a value that a rule forbids by its dtype or shape.
  bool misuse(int way) {
    std::vector<Section> any = sections_for({Role::temporary, Lifetime::section, PlaceKind::arena, DType::float32, 0, 8});
    if (way == 1 || way == 4) any = {Section::train_step};
    if (!edit_.enter(any)) return false;
    const DType dtype = static_cast<DType>(random_(4));
    const int rank = static_cast<int>(random_(7));
    const uint32_t id = edit_.value({Role::temporary, Lifetime::section, PlaceKind::arena, dtype, rank, rank}, rank);
    if (way == 0) {
      edit_.noise(id, 0, 0, 0);
    } else {
      edit_.zero(id);
    }
    if (way == 1) record(id, static_cast<int>(random_(7)), random_(4) ? DType::float32 : dtype);
    if (way == 2) edit_.emit(id, random_(2) ? "loss" : "extra");
    if (way == 3) edit_.call(graph_of("make", dtype, rank), {}, {{id, How::add_to}});
    edit_.free(id);
    return true;
  }

 private:
  bool writable(const Allowed& kind) const {
    return kind.lifetime == Lifetime::section || kind.lifetime == Lifetime::step || kind.lifetime == Lifetime::session;
  }

  uint32_t value_of(const Allowed& kind, int rank) {
    if (kind.role == Role::scalar && rank == 0 && kind.lifetime == Lifetime::call)
      return edit_.named(kind, 0, kind.dtype == DType::int64 ? "position" : "learning_rate");
    if (kind.role == Role::batch && rank == 2 && kind.lifetime == Lifetime::call) {
      const Plan& plan = edit_.plan();
      return edit_.named(kind, {2 * plan.batch_size, plan.sequence_length}, kind.dtype == DType::int64 ? "tokens*2" : "mask*2");
    }
    // Now and then the tensor of another kind: what the file has is then of another shape.
    if (kind.role == Role::weight)
      return edit_.named(kind, rank, "extra." + (random_(8) ? graph_of("", kind.dtype, rank).substr(1) : std::string("float32_1")));
    return edit_.value(kind, rank);
  }

  bool shape_is_library(uint32_t id) const {
    const Plan& plan = edit_.plan();
    const int64_t* shape = plan.shape(id);
    return std::all_of(shape, shape + plan.values[id].rank, [](int64_t extent) { return extent == 2; });
  }

  void define(uint32_t id, const Allowed& kind, int rank) {
    if (kind.role == Role::received) {
      edit_.receive(id, "extra");
    } else if (kind.role == Role::recorded) {
      const uint32_t source = edit_.value({Role::temporary, Lifetime::section, PlaceKind::arena, DType::float32, rank, rank}, rank);
      edit_.zero(source);
      edit_.record(source, id);
      edit_.free(source);
    } else if (kind.dtype == DType::float32 && random_(3) == 0) {
      edit_.noise(id, static_cast<uint32_t>(random_(4)), static_cast<uint16_t>(random_(4)), 1);
    } else if (random_(2)) {
      edit_.call(graph_of("make", kind.dtype, rank), {}, {{id, How::make}});
    } else {
      edit_.zero(id);
    }
  }

  void record(uint32_t source, int rank, DType dtype) {
    const PlaceKind place = random_(4) ? PlaceKind::arena : PlaceKind::scratch;
    const Role role = random_(8) ? Role::recorded : Role::temporary;
    const uint32_t kept = edit_.value({role, Lifetime::section, place, dtype, rank, rank}, rank);
    edit_.record(source, kept);
    edit_.free(kept);
  }

  Reference half(uint32_t id) {
    Reference reference{id};
    reference.start = static_cast<int32_t>(random_(2));
    reference.rows = 1;
    return reference;
  }

  void place_by(uint32_t number) {  // rows of something, placed by the number
    const uint32_t id = edit_.value({Role::temporary, Lifetime::section, PlaceKind::arena, DType::float32, 1, 1}, 1);
    edit_.zero(id);
    Reference reference{id};
    reference.rows = 1;
    reference.start = static_cast<int32_t>(random_(2));
    reference.scalar = static_cast<int32_t>(number);
    edit_.call("half_float32_1", {reference}, {});
    edit_.free(id);
  }

  std::string copies_graph(uint32_t id) const {
    const Plan& plan = edit_.plan();
    return std::string("copies_") + dtype_name(plan.values[id].dtype) + "_" + std::to_string(plan.shape(id)[0]) + "_" +
           std::to_string(plan.shape(id)[1]);
  }

  void store(uint32_t state, int rank) {
    const uint32_t source = edit_.value({Role::temporary, Lifetime::section, PlaceKind::arena, DType::float32, rank, rank}, rank);
    edit_.zero(source);
    edit_.store(state, source);
    edit_.free(source);
  }

  Random& random_;
  Edit edit_;
};

bool of_the_table(Case& one, const Corpus& corpus, Random& random) {
  const std::vector<Allowed>& rows = the_rules().values;
  const Allowed kind = rows[random(rows.size())];
  const int rank = kind.least_rank + static_cast<int>(random(static_cast<uint64_t>(kind.most_rank - kind.least_rank + 1)));
  return Insertion(one, corpus, random).insert(kind, rank);
}

bool of_any_kind(Case& one, const Corpus& corpus, Random& random) {
  Allowed kind = the_rules().values[random(the_rules().values.size())];
  switch (random(5)) {
    case 0:
      kind.role = static_cast<Role>(random(8));
      break;
    case 1:
      kind.lifetime = static_cast<Lifetime>(random(6));
      break;
    case 2:
      kind.place = static_cast<PlaceKind>(random(4));
      break;
    case 3:
      kind.dtype = static_cast<DType>(random(4));
      break;
    default:
      break;
  }
  return Insertion(one, corpus, random).insert(kind, static_cast<int>(random(random(2) ? 9 : 3)));
}

bool of_another_kind(Case& one, const Corpus& corpus, Random& random) {  // what the runtime binds, as something else
  constexpr Role roles[] = {Role::scalar, Role::constant, Role::batch, Role::recorded};
  Allowed kind{roles[random(4)], Lifetime::call, PlaceKind::named, random(2) ? DType::float32 : DType::int64, 0, 8};
  if (kind.role == Role::constant) kind.dtype = DType::int64, kind.place = random(2) ? PlaceKind::named : PlaceKind::number;
  if (kind.role == Role::recorded)
    kind = {Role::recorded, Lifetime::section, PlaceKind::scratch, DType::float32, 0, 8};
  else if (random(2))
    kind.lifetime = Lifetime::session, kind.place = PlaceKind::named;
  return Insertion(one, corpus, random).insert(kind, static_cast<int>(random(6)));
}

bool state_in_two_plans(Case& one, const Corpus& corpus, Random& random) {
  if (one.plans.size() < 2) return false;
  const Allowed kind{Role::optimizer, Lifetime::state, PlaceKind::named, DType::float32, 0, 8};
  int rank = static_cast<int>(random(8));
  const bool accumulates = one.method.training.accumulates();
  for (size_t n = 0; n < one.plans.size(); n++) {
    Edit edit(one, corpus, random, n);
    if (!edit.enter({accumulates ? Section::apply_step : Section::train_step})) return false;
    const uint32_t state = edit.named(kind, rank, edit.state("extra"));
    if (state == kNothing) return false;
    const uint32_t source = edit.value({Role::temporary, Lifetime::section, PlaceKind::arena, DType::float32, rank, rank}, rank);
    edit.zero(source);
    edit.store(state, source);
    edit.free(source);
    if (random(2)) rank = static_cast<int>(random(8));
  }
  return true;
}

template <int kWay>
bool misuse(Case& one, const Corpus& corpus, Random& random) {
  return Insertion(one, corpus, random).misuse(kWay);
}

}  // namespace

const std::vector<Mutation>& insertions() {
  static const std::vector<Mutation> all = {
      {"insert a value of the table", of_the_table},
      {"insert a value of the table", of_the_table},
      {"insert a value of the table", of_the_table},
      {"insert a value of the table", of_the_table},
      {"insert a value of any kind", of_any_kind},
      {"insert what is bound as another kind", of_another_kind},
      {"insert a state of one name in two plans", state_in_two_plans},
      {"insert noise of any dtype", misuse<0>},
      {"insert a record of any dtype and shape", misuse<1>},
      {"insert an emit of any dtype", misuse<2>},
      {"insert an addition of any dtype", misuse<3>},
  };
  return all;
}

}  // namespace fuzz
