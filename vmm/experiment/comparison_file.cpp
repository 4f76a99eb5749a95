// SPDX-License-Identifier: Apache-2.0
// Comparisons from TOML: the one file that includes toml++.
#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <toml++/toml.h>

#include "base/error.hpp"
#include "experiment/comparison.hpp"

namespace vmm::experiment {
namespace {

using base::BadInput;

[[noreturn]] void refuse(const toml::node& node, std::string_view key, std::string_view what) {
  throw BadInput(fmt::format("line {}: '{}' {}", node.source().begin.line, key, what));
}

// A value of an option: a string, or a whole number as it would be typed.
std::string text_of(const toml::node& node, std::string_view key) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto number = node.value_exact<std::int64_t>()) return std::to_string(*number);
  refuse(node, key, "must be a string or a whole number");
}

bool flag_of(const toml::node& node, std::string_view key) {
  if (const auto flag = node.value_exact<bool>()) return *flag;
  refuse(node, key, "must be true or false");
}

const toml::table& table_of(const toml::node& node, std::string_view key) {
  if (const auto* table = node.as_table()) return *table;
  refuse(node, key, "must be a table");
}

OptionText options_of(const toml::table& table) {
  OptionText options;
  for (const auto& [key, node] : table) options[std::string(key.str())] = text_of(node, key.str());
  return options;
}

Arm arm_of(const toml::table& table, const OptionText& common) {
  Arm arm;
  bool may_lack = false;
  OptionText own;
  for (const auto& [key, node] : table) {
    if (key == "name") {
      arm.name = text_of(node, "name");
    } else if (key == "host") {
      arm.host = flag_of(node, "host");
    } else if (key == "may-lack") {
      may_lack = flag_of(node, "may-lack");
    } else {
      own[std::string(key.str())] = text_of(node, key.str());
    }
  }
  if (arm.host) {
    if (!own.empty())
      throw BadInput(fmt::format("arm '{}': the host has no option '{}'", arm.name, own.begin()->first));
    return arm;
  }
  OptionText options = own;
  options.insert(common.begin(), common.end());  // an arm's own options win
  Arm guest = guest_arm(arm.name, std::move(options));
  guest.may_lack = may_lack;
  return guest;
}

Comparison comparison_of(const toml::table& root, const OptionText& given) {
  Comparison comparison;
  OptionText common;
  if (const toml::node* guest = root.get("guest")) common = options_of(table_of(*guest, "guest"));
  for (const auto& [option, value] : given) common[option] = value;
  for (const auto& [key, node] : root) {
    if (key == "guest") continue;
    if (key == "arm") {
      const auto* arms = node.as_array();
      if (arms == nullptr) refuse(node, "arm", "must be [[arm]], one for each arm");
      for (const toml::node& arm : *arms) comparison.arms.push_back(arm_of(table_of(arm, "arm"), common));
    } else if (key == "workload") {
      comparison.workload = base::parse_named_parameters("workload", text_of(node, "workload"));
    } else if (key == "baseline") {
      comparison.baseline = text_of(node, "baseline");
    } else if (key == "neighbour") {
      comparison.neighbour = flag_of(node, "neighbour");
    } else if (key == "blocks") {
      comparison.blocks =
          static_cast<unsigned>(base::parse_integer("blocks", text_of(node, "blocks"), {1, kBlocksMaximum}));
    } else if (key == "explore-blocks") {
      comparison.explore_blocks = static_cast<unsigned>(
          base::parse_integer("explore-blocks", text_of(node, "explore-blocks"), {1, kBlocksMaximum}));
    } else {
      refuse(node, key.str(), "is none of guest, arm, workload, baseline, neighbour, blocks, explore-blocks");
    }
  }
  if (comparison.arms.size() > kArmsMaximum) throw BadInput(fmt::format("more than {} arms", kArmsMaximum));
  return comparison;
}

}  // namespace

Comparison parse_comparison(std::string_view toml, std::string_view file_name, const OptionText& common) {
  // toml++ 3.3 reaches __builtin_unreachable() for some letters beyond ASCII in a key (found by fuzzing: "1\xcc\x8a").
  const auto* foreign = std::ranges::find_if(toml, [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
  if (foreign != toml.end()) {
    throw BadInput(fmt::format("'{}', line {}: a letter that is not ASCII; only ASCII works", file_name,
                               1 + std::count(toml.begin(), foreign, '\n')));
  }
  try {
    return comparison_of(toml::parse(toml, file_name), common);
  } catch (const toml::parse_error& error) {
    throw BadInput(
        fmt::format("'{}', line {}: {}", file_name, error.source().begin.line, std::string(error.description())));
  } catch (const BadInput& error) {
    throw BadInput(fmt::format("'{}': {}", file_name, error.what()));
  }
}

}  // namespace vmm::experiment
