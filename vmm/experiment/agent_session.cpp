// SPDX-License-Identifier: Apache-2.0
#include "experiment/agent_session.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/json_depth.hpp"

namespace vmm::experiment {
namespace {

constexpr unsigned kMarkAttemptsMaximum = 64;
constexpr std::size_t kExcerptBytes = 80;
constexpr std::size_t kAnswersMaximum = 16;
constexpr std::size_t kNestingMaximum = 16;
constexpr int kWaitMs = 10;
constexpr double kSecondsMaximum = 1e6;

// A piece of what the guest said, safe to show.
std::string excerpt(std::string_view text) {
  std::string out = "'";
  for (const char c : text.substr(0, kExcerptBytes)) out += (c >= 0x20 && c < 0x7f) ? c : '?';
  return out + (text.size() > kExcerptBytes ? "…'" : "'");
}

std::string text_of(const nlohmann::json& message, const char* key) {
  const auto field = message.find(key);
  return field != message.end() && field->is_string() ? field->get<std::string>() : std::string();
}

std::optional<std::uint64_t> unsigned_of(const nlohmann::json& message, const char* key) {
  const auto field = message.find(key);
  if (field == message.end() || !field->is_number_unsigned()) return std::nullopt;
  return field->get<std::uint64_t>();
}

std::string line(const nlohmann::json& message) {
  return message.dump() + "\n";
}

}  // namespace

AgentSession::AgentSession(Speaker speaker, MarkSource marks) : speaker_(speaker), marks_(std::move(marks)) {}

std::string AgentSession::on_line(std::string_view text, bool complete) {
  const std::lock_guard lock(mutex_);
  ++lines_;
  if (violation_) return {};
  if (!complete) return violate("a line on the agent channel is longer than 64 KiB");
  if (base::nests_deeper(text, kNestingMaximum)) {
    return violate(fmt::format("a line on the agent channel nests deeper than {}: {}", kNestingMaximum, excerpt(text)));
  }
  const Json message = Json::parse(text, nullptr, false);
  if (message.is_discarded() || !message.is_object()) {
    return violate(fmt::format("a line on the agent channel is not a JSON object: {}", excerpt(text)));
  }
  std::string reply = handle(message);
  changed_.notify_all();
  return reply;
}

std::string AgentSession::violate(std::string what) {
  if (!violation_) violation_ = std::move(what);
  changed_.notify_all();
  return {};
}

std::string AgentSession::next_command() {
  if (commands_.empty()) return line({{"cmd", "wait"}, {"ms", kWaitMs}});
  std::string command = std::move(commands_.front());
  commands_.pop_front();
  return command;
}

std::string AgentSession::handle(const Json& message) {
  const std::string type = text_of(message, "type");
  if (type == "mark") return handle_mark(message);
  if (type == "mark-ok") {
    handle_mark_ok(message);
  } else if (type == "result") {
    handle_result(message);
  } else if (type == "phase" || type == "heartbeat" || type == "log") {
    // a sign of life, nothing more
  } else if (type == "error" || (type == "configured" && speaker_ == Speaker::kAgent)) {
    if (answers_.size() >= kAnswersMaximum)
      return violate("the agent floods the channel with answers nobody asked for");
    answers_.push_back(message);
  } else if (type == "hello" && speaker_ == Speaker::kAgent) {
    if (hello_) return violate("the agent said hello twice");
    hello_ = message;
    return next_command();
  } else if (type == "next" && speaker_ == Speaker::kAgent) {
    if (!hello_) return violate("the agent asked for a command before its hello");
    return next_command();
  } else {
    return violate(fmt::format("unknown message on the agent channel: type {}", excerpt(type)));
  }
  return {};
}

std::string AgentSession::handle_mark(const Json& message) {
  const std::string name = text_of(message, "name");
  const auto trial = unsigned_of(message, "trial");
  const bool is_begin = name == "begin";
  if (speaker_ == Speaker::kPayload && is_begin && phase_ == Phase::kNone) {
    phase_ = Phase::kCommanded;
    trial_ = trial.value_or(0);
    begin_ = {};
    end_ = {};
  }
  Mark& mark = is_begin ? begin_ : end_;
  const bool in_phase = is_begin ? phase_ == Phase::kCommanded || phase_ == Phase::kBegun
                                 : name == "end" && begin_.confirmed && phase_ != Phase::kNone;
  const bool in_order = in_phase && !mark.confirmed;
  if (!in_order || trial != trial_) {
    return violate(fmt::format("a mark out of order: {} of trial {} while trial {} is {}", excerpt(name),
                               trial ? std::to_string(*trial) : "?", trial_,
                               phase_ == Phase::kNone ? "not running" : "under way"));
  }
  if (++mark.attempts > kMarkAttemptsMaximum) {
    return violate(fmt::format("the guest never comes to rest: {} attempts at the {} mark", mark.attempts - 1, name));
  }
  auto vcpus = marks_();
  if (!vcpus) return line({{"mark", "retry"}});
  mark.time = std::chrono::steady_clock::now();
  mark.vcpus = std::move(*vcpus);
  phase_ = is_begin ? Phase::kBegun : Phase::kEnded;
  // A payload is at rest while it speaks: its counts come with the mark, and that is all.
  if (speaker_ == Speaker::kPayload) confirm(mark, message);
  return line({{"mark", "ok"}});
}

void AgentSession::handle_mark_ok(const Json& message) {
  const std::string name = text_of(message, "name");
  const bool taken = name == "begin" ? phase_ == Phase::kBegun : name == "end" && phase_ == Phase::kEnded;
  Mark& mark = name == "begin" ? begin_ : end_;
  if (!taken || mark.confirmed || unsigned_of(message, "trial") != trial_) {
    violate(fmt::format("the agent confirms a mark that was not taken: {}", excerpt(name)));
    return;
  }
  confirm(mark, message);
}

void AgentSession::confirm(Mark& mark, const Json& message) {
  const auto guest = message.find("guest");
  stats::merge_guest_mark(mark.vcpus, guest == message.end() ? Json() : *guest,
                          speaker_ == Speaker::kAgent ? stats::MarkSpeaker::kAgent : stats::MarkSpeaker::kPayload);
  mark.confirmed = true;
}

void AgentSession::handle_result(const Json& message) {
  // A payload may report without having measured anything between marks. A workload that failed may have no end mark;
  // one that succeeded must.
  const bool unmeasured = speaker_ == Speaker::kPayload && phase_ == Phase::kNone;
  if (unmeasured) trial_ = unsigned_of(message, "trial").value_or(trial_);
  const bool running = phase_ != Phase::kNone || unmeasured;
  const auto status = message.find("status");
  const bool ok = status != message.end() && status->is_number_integer();
  if (!running || unsigned_of(message, "trial") != trial_ || !ok) {
    violate("a result that belongs to no trial, or without a status");
    return;
  }
  if (!unmeasured && status->get<std::int64_t>() == 0 && !end_.confirmed) {
    violate("a successful result without both marks");
    return;
  }
  answers_.push_back(message);
}

std::uint64_t AgentSession::lines() const {
  const std::lock_guard lock(mutex_);
  return lines_;
}

std::optional<nlohmann::json> AgentSession::wait_for_hello() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return hello_ || closed_ || violation_ || !answers_.empty(); });
  if (!hello_) return std::nullopt;
  return hello_;
}

std::optional<nlohmann::json> AgentSession::wait_for_answer(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [&] { return !answers_.empty() || closed_ || violation_; });
  if (answers_.empty() || violation_) return std::nullopt;
  Json answer = std::move(answers_.front());
  answers_.pop_front();
  return answer;
}

std::optional<nlohmann::json> AgentSession::configure(const nlohmann::json& settings) {
  std::unique_lock lock(mutex_);
  Json command = settings;
  command["cmd"] = "configure";
  commands_.push_back(line(command));
  const auto answer = wait_for_answer(lock);
  if (!answer) return std::nullopt;
  const std::string type = text_of(*answer, "type");
  if (type == "configured") {
    for (const auto& [key, value] : settings.items()) {
      const auto got = answer->find(key);
      if (got != answer->end() && *got == value) continue;
      throw base::HostUnable(fmt::format("the guest did not take {}={}: it reads back as {}", key, value.dump(),
                                         got == answer->end() ? "nothing" : got->dump()));
    }
    return answer;
  }
  if (type == "error") {
    const std::string what = excerpt(text_of(*answer, "what"));
    if (text_of(*answer, "code") == "no-knob") {
      throw base::HostUnable(
          fmt::format("the guest's kernel lacks what was asked for: {}; the built guest (no --kernel) has it", what));
    }
    throw base::HostUnable(fmt::format("the guest cannot be configured as asked: {}", what));
  }
  violate(fmt::format("the agent answered 'configure' with {}", excerpt(type)));
  return std::nullopt;
}

AgentSession::Trial AgentSession::take_trial(Json result) {
  Trial trial;
  trial.status = static_cast<int>(result.value("status", std::int64_t{1}));
  stats::TrialResult& out = trial.result;
  out.trial = trial_;
  out.begin_attempts = begin_.attempts;
  out.end_attempts = end_.attempts;
  if (begin_.confirmed && end_.confirmed) {
    out.vcpus = stats::difference(begin_.vcpus, end_.vcpus);
    out.wall_ns = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(end_.time - begin_.time).count());
  }
  const auto source = speaker_ == Speaker::kAgent ? stats::Source::kGuest : stats::Source::kPayload;
  stats::WorkloadResult& workload = out.workload;
  workload.name = text_of(result, "workload");
  workload.seconds = stats::Value::null(stats::Unit::kSeconds, source, "the workload did not report it");
  if (const auto field = result.find("seconds"); field != result.end() && field->is_number()) {
    const double seconds = field->get<double>();
    workload.seconds = seconds >= 0 && seconds < kSecondsMaximum
                           ? stats::Value::number(seconds, stats::Unit::kSeconds, source)
                           : stats::Value::null(stats::Unit::kSeconds, source, "guest reported nonsense");
  }
  workload.operations = stats::Value::null(stats::Unit::kCount, source, "the workload did not report it");
  if (const auto operations = unsigned_of(result, "operations")) {
    workload.operations = stats::Value::count(*operations, source);
  }
  result.erase("type");
  result.erase("trial");
  workload.raw = std::move(result);
  phase_ = Phase::kNone;
  begin_ = {};
  end_ = {};
  return trial;
}

std::optional<AgentSession::Trial> AgentSession::run(const std::string& workload,
                                                     const std::map<std::string, std::string>& args) {
  std::unique_lock lock(mutex_);
  ++trial_;
  phase_ = Phase::kCommanded;
  begin_ = {};
  end_ = {};
  commands_.push_back(line({{"cmd", "run"}, {"trial", trial_}, {"workload", workload}, {"args", Json(args)}}));
  auto answer = wait_for_answer(lock);
  if (!answer) return std::nullopt;
  const std::string type = text_of(*answer, "type");
  if (type == "result") return take_trial(std::move(*answer));
  if (type == "error") {
    throw base::HostUnable(
        fmt::format("the guest refuses to run '{}': {}", workload, excerpt(text_of(*answer, "what"))));
  }
  violate(fmt::format("the agent answered 'run' with {}", excerpt(type)));
  return std::nullopt;
}

std::optional<AgentSession::Trial> AgentSession::wait_for_payload_trial() {
  std::unique_lock lock(mutex_);
  auto answer = wait_for_answer(lock);
  if (!answer) return std::nullopt;
  if (text_of(*answer, "type") == "result") return take_trial(std::move(*answer));
  throw base::BadInput(
      fmt::format("--payload: the payload refuses its arguments: {}", excerpt(text_of(*answer, "what"))));
}

bool AgentSession::trial_unfinished() const {
  const std::lock_guard lock(mutex_);
  return !begin_.vcpus.empty();
}

void AgentSession::power_off() {
  const std::lock_guard lock(mutex_);
  commands_.push_back(line({{"cmd", "poweroff"}}));
}

void AgentSession::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

std::optional<std::string> AgentSession::violation() const {
  const std::lock_guard lock(mutex_);
  return violation_;
}

}  // namespace vmm::experiment
