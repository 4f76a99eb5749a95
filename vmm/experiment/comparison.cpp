// SPDX-License-Identifier: Apache-2.0
#include "experiment/comparison.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>

#include "base/error.hpp"
#include "experiment/run.hpp"
#include "stats/inference.hpp"

namespace vmm::experiment {
namespace {

using base::BadInput;

constexpr std::string_view kBest = "best";
constexpr std::string_view kHostArm = "host";
constexpr std::uint64_t kSweepMinimumNs = 10'000;
constexpr std::uint64_t kSweepMaximumNs = 1'000'000'000;

constexpr std::array<Knob, 3> kKnobs = {Knob::kGuestSpin, Knob::kHostHaltPoll, Knob::kGuestHaltPoll};
// In the order in which an arm's name has them.
constexpr std::array<std::string_view, 4> kListOptions = {"guest-spin", "guest-idle", "guest-halt-poll",
                                                          "host-halt-poll"};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == ',') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

Arm host_arm() {
  Arm arm;
  arm.name = kHostArm;
  arm.host = true;
  return arm;
}

struct PresetArm {
  const char* name;
  std::vector<std::pair<const char*, const char*>> options;
  bool may_lack = false;
};

// Seed 1's table. No host polling in any arm, so that it is the guest's spin that differs.
const std::vector<PresetArm>& seed_arms() {
  static const std::vector<PresetArm> arms = {{"guest-spin=0", {{"guest-spin", "0"}}},
                                              {"guest-spin=50us", {{"guest-spin", "50us"}}},
                                              {"guest-spin=220us", {{"guest-spin", "220us"}}},
                                              {"guest-spin=best", {{"guest-spin", "best"}}}};
  return arms;
}

// Who waits, and where: each policy with its own knob at its best.
const std::vector<PresetArm>& polling_arms() {
  static const std::vector<PresetArm> arms = {
      {"none", {}},
      {"guest spin", {{"guest-spin", "best"}}},
      {"host poll", {{"host-halt-poll", "best"}}},
      {"haltpoll", {{"guest-idle", "haltpoll"}, {"guest-halt-poll", "best"}}},
      {"idle=poll", {{"guest-idle", "poll"}}},
      {"HLT pass-through", {{"disable-exits", "hlt"}}, true},
      {"MWAIT pass-through", {{"guest-idle", "mwait"}, {"disable-exits", "mwait"}}, true}};
  return arms;
}

}  // namespace

const char* name_of(Knob knob) noexcept {
  switch (knob) {
    case Knob::kGuestSpin:
      return "guest-spin";
    case Knob::kHostHaltPoll:
      return "host-halt-poll";
    case Knob::kGuestHaltPoll:
      return "guest-halt-poll";
  }
  return "?";
}

Arm guest_arm(std::string name, OptionText options) {
  Arm arm;
  arm.name = std::move(name);
  for (const Knob knob : kKnobs) {
    const auto given = options.find(name_of(knob));
    if (given == options.end() || given->second != kBest) continue;
    if (arm.best_of) throw BadInput(fmt::format("arm '{}': 'best' can be looked for in one knob only", arm.name));
    arm.best_of = knob;
    options.erase(given);
  }
  arm.guest = parse_guest_options(options);
  if (arm.guest.payload) throw BadInput("--payload: compare runs workloads in Linux guests; `vmm --payload` runs one");
  if (!arm.guest.initrd.empty())
    throw BadInput("--initrd: the agent that compare needs is in the built one; leave it out");
  return arm;
}

Comparison preset_comparison(std::string_view name, const OptionText& common) {
  Comparison comparison;
  comparison.preset = name;
  const std::vector<PresetArm>* arms = nullptr;
  if (name == "seed") {
    arms = &seed_arms();
  } else if (name == "polling" || name == "contention") {
    arms = &polling_arms();
    comparison.neighbour = name == "contention";
  } else {
    throw BadInput(fmt::format("--preset: '{}' is none of seed, polling, contention", name));
  }
  comparison.arms.push_back(host_arm());
  for (const PresetArm& preset : *arms) {
    OptionText options = common;
    for (const auto& [option, value] : preset.options) {
      if (!options.emplace(option, value).second) {
        throw BadInput(fmt::format("--{}: the preset '{}' sets it itself; leave one of the two out", option, name));
      }
    }
    comparison.arms.push_back(guest_arm(preset.name, std::move(options)));
    comparison.arms.back().may_lack = preset.may_lack;
  }
  return comparison;
}

Comparison grid_comparison(const OptionText& lists) {
  struct Axis {
    std::string option;
    std::vector<std::string> values;
  };
  std::vector<Axis> axes;
  OptionText common = lists;
  for (const std::string_view option : kListOptions) {
    const auto given = common.find(option);
    if (given == common.end()) continue;
    axes.push_back({std::string(option), split(given->second)});
    common.erase(given);
    const std::set<std::string> once(axes.back().values.begin(), axes.back().values.end());
    if (once.size() != axes.back().values.size()) {
      throw BadInput(fmt::format("--{}: '{}' has a value twice", option, lists.find(option)->second));
    }
  }
  std::size_t arms = 1;
  for (const Axis& axis : axes) {
    arms *= axis.values.size();
    if (arms >= kArmsMaximum) {
      throw BadInput(fmt::format("the options' lists make more than {} arms; fewer values work", kArmsMaximum - 1));
    }
  }

  Comparison comparison;
  comparison.arms.push_back(host_arm());
  for (std::size_t index = 0; index < arms; ++index) {
    OptionText options = common;
    std::string name;
    std::size_t left = index;
    // The last list varies fastest, as loops nest.
    for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
      const std::string& value = axis->values[left % axis->values.size()];
      left /= axis->values.size();
      options[axis->option] = value;
      name = fmt::format("{}={}{}{}", axis->option, value, name.empty() ? "" : " ", name);
    }
    comparison.arms.push_back(guest_arm(name.empty() ? "guest" : name, std::move(options)));
  }
  return comparison;
}

void complete(Comparison& comparison) {
  std::vector<Arm>& arms = comparison.arms;
  if (comparison.baseline.empty()) {
    const auto first = std::ranges::find(arms, false, &Arm::host);
    if (first == arms.end()) throw BadInput("a comparison needs at least one guest");
    comparison.baseline = first->name;
  }
  const auto baseline = std::ranges::find(arms, comparison.baseline, &Arm::name);
  if (baseline == arms.end() || baseline->host) {
    throw BadInput(fmt::format("baseline: '{}' is no guest among the arms", comparison.baseline));
  }
  if (baseline->may_lack || baseline->best_of) {
    throw BadInput(fmt::format("baseline: '{}' is not the same in every run; an arm with fixed values works",
                               comparison.baseline));
  }
  if (std::ranges::all_of(arms, [](const Arm& arm) { return arm.null_of.empty(); })) {
    Arm control = *baseline;
    control.null_of = control.name;
    control.name += " (again)";
    arms.push_back(std::move(control));
  }
  if (arms.size() > kArmsMaximum) throw BadInput(fmt::format("more than {} arms", kArmsMaximum));
  std::set<std::string> names;
  for (const Arm& arm : arms) {
    if (arm.name.empty()) throw BadInput("an arm needs a name");
    if (!names.insert(arm.name).second) throw BadInput(fmt::format("arm '{}' is there twice", arm.name));
  }
}

GuestConfig boot_config(GuestConfig guest) {
  guest.guest_spin_us.reset();
  guest.guest_halt_poll_ns.reset();
  guest.host_halt_poll_ns.reset();
  return guest;
}

nlohmann::ordered_json to_json(const Arm& arm) {
  nlohmann::ordered_json json = {{"name", arm.name}, {"host", arm.host}};
  if (!arm.host) json["guest"] = config_json(arm.guest);
  json["best_of"] = arm.best_of ? nlohmann::ordered_json(name_of(*arm.best_of)) : nlohmann::ordered_json(nullptr);
  json["null_of"] = arm.null_of.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(arm.null_of);
  return json;
}

nlohmann::ordered_json to_json(const Comparison& comparison) {
  nlohmann::ordered_json arms = nlohmann::ordered_json::array();
  for (const Arm& arm : comparison.arms) arms.push_back(to_json(arm));
  return {{"preset",
           comparison.preset.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(comparison.preset)},
          {"arms", std::move(arms)},
          {"baseline", comparison.baseline},
          {"workload", {{"name", comparison.workload.name}, {"args", comparison.workload.parameters}}},
          {"neighbour", comparison.neighbour},
          {"blocks", comparison.blocks},
          {"explore_blocks", comparison.explore_blocks}};
}

std::vector<std::size_t> block_order(std::uint64_t seed, unsigned block, std::size_t arms) {
  // Fisher and Yates by hand: std::shuffle's result is not the same in every library, and --resume relies on it.
  std::seed_seq mix{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32), std::uint32_t{block}};
  std::mt19937_64 random(mix);
  std::vector<std::size_t> order(arms);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t left = arms; left > 1; --left) std::swap(order[left - 1], order[random() % left]);
  return order;
}

std::optional<std::uint64_t> sweep_step_up(std::uint64_t value_ns) {
  std::uint64_t decade = 1;
  while (decade * 10 <= value_ns) decade *= 10;
  for (const std::uint64_t step : {decade, 2 * decade, 5 * decade, 10 * decade}) {
    if (step > value_ns) return step <= kSweepMaximumNs ? std::optional(step) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> sweep_step_down(std::uint64_t value_ns) {
  std::uint64_t below = kSweepMinimumNs;
  if (value_ns <= below) return std::nullopt;
  while (true) {
    const auto next = sweep_step_up(below);
    if (!next || *next >= value_ns) return below;
    below = *next;
  }
}

std::vector<std::uint64_t> sweep_values_ns(std::uint64_t gap_p90_ns) {
  const std::uint64_t gap = std::clamp(gap_p90_ns, kSweepMinimumNs, kSweepMaximumNs / 4);
  std::vector<std::uint64_t> values;
  std::optional<std::uint64_t> value = sweep_step_up(std::max(gap / 8, kSweepMinimumNs) - 1);
  while (value) {
    values.push_back(*value);
    if (*value > 4 * gap) break;
    value = sweep_step_up(*value);
  }
  return values;
}

std::uint64_t best_value_ns(const Sweep& sweep) {
  double least = std::numeric_limits<double>::infinity();
  for (const Sweep::Point& point : sweep.points) {
    if (!point.seconds.empty()) least = std::min(least, stats::median(point.seconds));
  }
  for (const Sweep::Point& point : sweep.points) {
    if (!point.seconds.empty() && stats::median(point.seconds) <= least * (1 + kSweepTolerance)) return point.value_ns;
  }
  throw std::invalid_argument("best_value_ns of no trials");
}

void set_knob(GuestConfig& guest, Knob knob, std::uint64_t value_ns) {
  switch (knob) {
    case Knob::kGuestSpin:
      guest.guest_spin_us = static_cast<std::uint32_t>(value_ns / 1000);
      break;
    case Knob::kHostHaltPoll:
      guest.host_halt_poll_ns = value_ns;
      break;
    case Knob::kGuestHaltPoll:
      guest.guest_halt_poll_ns = value_ns;
      break;
  }
}

}  // namespace vmm::experiment
