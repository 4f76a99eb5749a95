// SPDX-License-Identifier: Apache-2.0
#include "vmm_process.hpp"

#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <signal.h>
#include <sstream>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace vmm::integration {
namespace {

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

std::filesystem::path build_directory() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
}
bool kvm_is_here() {
  return ::access("/dev/kvm", R_OK | W_OK) == 0;
}
bool nested() {
  return std::getenv("VMM_NESTED") != nullptr;
}

VmmProcess::VmmProcess(std::vector<std::string> arguments, std::optional<uid_t> as_user) {
  std::string name = (std::filesystem::temp_directory_path() / "vmm-test-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
  directory_ = name;
  arguments.insert(arguments.begin(), (build_directory() / "bin/vmm").string());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const std::string out = (directory_ / "out").string();
  const std::string err = (directory_ / "err").string();
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("fork");
  if (pid_ == 0) {
    const int null = ::open("/dev/null", O_RDONLY);
    const int out_fd = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    const int err_fd = ::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ::dup2(null, STDIN_FILENO);
    ::dup2(out_fd, STDOUT_FILENO);
    ::dup2(err_fd, STDERR_FILENO);
    // Opened before the user changes: a checkout below somebody's home is closed to others.
    const int program = ::open(argv[0], O_RDONLY | O_CLOEXEC);
    if (as_user && (::setgid(*as_user) != 0 || ::setuid(*as_user) != 0)) ::_exit(125);
    ::fexecve(program, argv.data(), environ);
    ::_exit(126);
  }
}

VmmProcess::~VmmProcess() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  std::filesystem::remove_all(directory_);
}

int VmmProcess::wait(std::chrono::seconds limit) {
  int status = 0;
  const bool ended = wait_until([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, limit);
  if (!ended) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return -1;
  }
  pid_ = -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool VmmProcess::wait_until(const std::function<bool()>& condition, std::chrono::seconds limit) const {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

bool VmmProcess::has_thread(const std::string& name) const {
  std::error_code error;
  const std::filesystem::path tasks = "/proc/" + std::to_string(pid_) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks, error)) {
    if (contents(task.path() / "comm") == name + "\n") return true;
  }
  return false;
}

std::string VmmProcess::standard_output() const {
  return contents(directory_ / "out");
}
std::string VmmProcess::standard_error() const {
  return contents(directory_ / "err");
}

Finished run_vmm(std::vector<std::string> arguments, bool with_stats) {
  std::string name = (std::filesystem::temp_directory_path() / "vmm-stats-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
  const std::filesystem::path stats = std::filesystem::path(name) / "stats.json";
  if (with_stats) arguments.push_back("--stats=" + stats.string());
  Finished finished;
  {
    VmmProcess process(arguments);
    finished.status = process.wait(std::chrono::seconds(120));
    finished.out = process.standard_output();
    finished.err = process.standard_error();
  }
  if (std::filesystem::exists(stats)) finished.json = nlohmann::json::parse(contents(stats), nullptr, false);
  std::filesystem::remove_all(name);
  return finished;
}

std::optional<std::uint64_t> counter(const nlohmann::json& document, std::size_t vcpu, const std::string& name) {
  const nlohmann::json& value = document.at("vcpus").at(vcpu).at("counters").at(name).at("value");
  if (value.is_null()) return std::nullopt;
  return value.get<std::uint64_t>();
}

std::optional<std::uint64_t> counter_sum(const nlohmann::json& document, const std::string& name) {
  std::uint64_t sum = 0;
  for (std::size_t vcpu = 0; vcpu < document.at("vcpus").size(); ++vcpu) {
    const auto value = counter(document, vcpu, name);
    if (!value) return std::nullopt;
    sum += *value;
  }
  return sum;
}

}  // namespace vmm::integration
