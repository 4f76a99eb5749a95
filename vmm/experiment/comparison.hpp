// SPDX-License-Identifier: Apache-2.0
// What a comparison is: its arms and how often they run. Values only; from a preset, a grid of options, or a TOML file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "experiment/guest_options.hpp"
#include "experiment/run_config.hpp"

namespace vmm::experiment {

// The value of an arm that is looked for in exploratory blocks; always a time.
enum class Knob { kGuestSpin, kHostHaltPoll, kGuestHaltPoll };
const char* name_of(Knob knob) noexcept;  // the option's name: "guest-spin"

// One row of a comparison.
struct Arm {
  std::string name;
  bool host = false;            // the workload on this host, without a guest
  GuestConfig guest;            // otherwise
  std::optional<Knob> best_of;  // `guest` gets the best value of this knob
  std::string null_of;          // the arm that this one repeats: the null control
  bool may_lack = false;        // a host that cannot run it leaves it out and says so; else that is an error
  bool operator==(const Arm&) const = default;
};

inline constexpr unsigned kBlocksMaximum = 1000;
inline constexpr std::size_t kArmsMaximum = 64;

struct Comparison {
  std::string preset;  // "seed", …; empty: a grid or a file
  std::vector<Arm> arms;
  std::string baseline;  // the arm that ratios refer to
  base::NamedParameters workload{"tcp-pingpong", {}};
  bool neighbour = false;       // a second runnable task on the vCPUs' CPUs
  unsigned blocks = 8;          // of the measurement: one trial of each arm, in random order
  unsigned explore_blocks = 2;  // trials of each value when a best one is looked for
};

// A guest's arm from options of which one knob may be "best". Throws BadInput as parse_guest_options() does, and for
// what compare cannot run: a payload, an initrd of one's own.
Arm guest_arm(std::string name, OptionText options);

// A preset by name (seed, polling, contention), every guest with the `common` options. Throws BadInput: no such preset,
// or an option that a preset sets itself.
Comparison preset_comparison(std::string_view name, const OptionText& common);

// Options of which guest-spin, guest-idle, guest-halt-poll and host-halt-poll may be lists ("0,50us,best"): all their
// combinations, the host first. Throws BadInput: as parse_guest_options(), "best" in two lists, a value twice, too many
// arms.
Comparison grid_comparison(const OptionText& lists);

// A TOML file (docs/experiments.md). `common` from the command line wins over its [guest] table. Throws BadInput naming
// the file, the line where TOML is broken, the key.
Comparison parse_comparison(std::string_view toml, std::string_view file_name, const OptionText& common);

// Appends the null control, when there is none: the baseline again. Throws BadInput for what no comparison can be: no
// arm, names twice, a baseline that is not there or is the host.
void complete(Comparison& comparison);

// The part of a guest's configuration that needs a boot of its own: the rest can change while it runs.
GuestConfig boot_config(GuestConfig guest);

// What is asked, as JSON: two comparisons with the same plan may share a result file (--resume).
nlohmann::ordered_json to_json(const Comparison& comparison);
nlohmann::ordered_json to_json(const Arm& arm);

// The order of a block's arms: a permutation of 0 to arms-1 that depends on the arguments alone.
std::vector<std::size_t> block_order(std::uint64_t seed, unsigned block, std::size_t arms);

// Values to try for a knob, ns, ascending in steps of about 2 (1, 2, 5, 10 …) from an eighth of `gap_p90_ns` to beyond
// four times it: KVM's and the haltpoll governor's polling grows only for gaps shorter than their maximum.
std::vector<std::uint64_t> sweep_values_ns(std::uint64_t gap_p90_ns);
// The steps beside a value of that sequence; nothing beyond 10 us and 1 s.
std::optional<std::uint64_t> sweep_step_up(std::uint64_t value_ns);
std::optional<std::uint64_t> sweep_step_down(std::uint64_t value_ns);

// The result of looking for the best value.
struct Sweep {
  struct Point {
    std::uint64_t value_ns;
    std::vector<double> seconds;
  };
  std::vector<Point> points;  // ascending
};
// Of the values whose median is within kSweepTolerance of the least one the smallest: longer polling costs more. Needs
// a point with a trial.
inline constexpr double kSweepTolerance = 0.02;
std::uint64_t best_value_ns(const Sweep& sweep);

// Sets the arm's knob.
void set_knob(GuestConfig& guest, Knob knob, std::uint64_t value_ns);

}  // namespace vmm::experiment
