// SPDX-License-Identifier: Apache-2.0
//
// PID 1 of L1, the Linux host that nested-host runs under QEMU. It
//   1. loads the modules that nested-host put into the initramfs, KVM's with the parameters on the kernel command line,
//   2. says "waiting" on the status port and waits there for a job: here nested-host saves the machine's state, and
//   later runs
//      resume it here instead of booting,
//   3. makes the outer machine's root file system (9p, read-only) its root,
//   4. runs the one command of the job file with stdout and stderr on pipes, copied to two virtio-serial ports,
//   5. reports how the command ended on the status port.
// The kernel console belongs to the kernel: nothing of the command ever goes there.
//
// Lines on the status port, from L1: "waiting", "ready", then one of "exit N", "signal N", and "fail TEXT" when L1
// could not get as far as the command. To L1: "job MICROSECONDS ENTROPY PATH" (the time of day since 1970; random text;
// the job file).
//
// Job file: records that end in NUL, "key=value":
//   cwd=DIR  arg=WORD (one each, in order)  env=NAME=VALUE  show=DIR (keep visible below a tmpfs)  out=DIR (9p tag
//   "out")
// Kernel command line: nested.NAME=PARAMETER,PARAMETER... for the module NAME.

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <linux/kvm.h>
#include <linux/perf_event.h>
#include <linux/random.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

// Thrown while L1 is being set up; its text becomes the "fail" line.
class SetupError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[noreturn]] void fail(const std::string& what) {
  throw SetupError(what + ": " + std::strerror(errno));
}

class UniqueFd {
 public:
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }
  int get() const { return fd_; }
  void reset() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

struct Job {
  std::string cwd = "/";
  std::string out;
  std::vector<std::string> args;
  std::vector<std::string> env;
  std::vector<std::string> show;
};

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail("cannot read " + path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

Job read_job(const std::string& path) {
  Job job;
  std::istringstream records(read_file(path));
  for (std::string record; std::getline(records, record, '\0');) {
    const auto equals = record.find('=');
    if (equals == std::string::npos) throw SetupError("job file: record without '=': " + record);
    const std::string key = record.substr(0, equals);
    const std::string value = record.substr(equals + 1);
    if (key == "cwd") {
      job.cwd = value;
    } else if (key == "out") {
      job.out = value;
    } else if (key == "arg") {
      job.args.push_back(value);
    } else if (key == "env") {
      job.env.push_back(value);
    } else if (key == "show") {
      job.show.push_back(value);
    } else {
      throw SetupError("job file: unknown key " + key);
    }
  }
  if (job.args.empty()) throw SetupError("job file: no command");
  return job;
}

// /modules/order: lines "NAME FILE", in load order.
struct Module {
  std::string name;
  std::string path;
};

std::vector<Module> read_module_list() {
  std::vector<Module> modules;
  std::istringstream lines(read_file("/modules/order"));
  for (std::string name, file; lines >> name >> file;) modules.push_back({name, "/modules/" + file});
  return modules;
}

void load_module(const Module& module, const std::string& parameters) {
  const UniqueFd fd(open(module.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) fail("cannot open " + module.path);
  if (syscall(SYS_finit_module, fd.get(), parameters.c_str(), 0) != 0 && errno != EEXIST) {
    fail("cannot load the kernel module " + module.name + (parameters.empty() ? "" : " with '" + parameters + "'"));
  }
}

void mount_at(const char* source, const std::string& target, const char* type, unsigned long flags, const char* data) {
  if (mount(source, target.c_str(), type, flags, data) != 0)
    fail(std::string("cannot mount ") + (type == nullptr ? source : type) + " at " + target);
}

// As mkdir -p: below the tmpfs mounts only, the root is read-only.
void make_directories(const std::string& path) {
  for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    struct stat status{};
    if (stat(part.c_str(), &status) != 0 && mkdir(part.c_str(), 0755) != 0) fail("cannot create " + part);
    if (slash == std::string::npos) return;
  }
}

void make_root(const char* host_root) {
  mkdir(host_root, 0755);
  // cache=loose: nothing else writes through this mount, and L1 is gone within minutes. msize: the virtio ring of 128
  // descriptors carries at most 125 pages a request (net/9p/trans_virtio.c).
  mount_at("root", host_root, "9p", MS_RDONLY, "trans=virtio,version=9p2000.L,msize=512000,cache=loose");
}

void enter_root(const char* host_root) {
  for (const char* name : {"/dev", "/proc", "/sys"}) {
    const std::string target = std::string(host_root) + name;
    if (mount(name, target.c_str(), nullptr, MS_MOVE, nullptr) != 0)
      fail("cannot move " + std::string(name) + " to " + target);
  }
  if (chdir(host_root) != 0 || mount(".", "/", nullptr, MS_MOVE, nullptr) != 0 || chroot(".") != 0 || chdir("/") != 0) {
    fail("cannot make the outer machine's file system the root");
  }
}

// Puts tmpfs over the places that programs write to, and what the job shows from below them back in its place.
void mount_temporary(const Job& job) {
  std::vector<std::pair<std::string, UniqueFd>> shown;
  for (const std::string& path : job.show) {
    UniqueFd tree(
        static_cast<int>(syscall(SYS_open_tree, AT_FDCWD, path.c_str(), 1 /* OPEN_TREE_CLONE */ | O_CLOEXEC)));
    if (tree.get() < 0) fail("cannot show " + path);
    shown.emplace_back(path, std::move(tree));
  }
  for (const char* target : {"/tmp", "/run", "/var/tmp"}) {
    const char* options = std::string(target) == "/run" ? "mode=0755" : "mode=1777";
    if (mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, options) != 0 && errno != ENOENT) {
      fail(std::string("cannot mount tmpfs at ") + target);
    }
  }
  for (const auto& [path, tree] : shown) {
    struct stat status{};
    if (fstat(tree.get(), &status) != 0) fail("cannot show " + path);
    if (S_ISDIR(status.st_mode)) {
      make_directories(path);
    } else {
      make_directories(path.substr(0, path.rfind('/')));
      const UniqueFd file(open(path.c_str(), O_CREAT | O_RDONLY | O_CLOEXEC, 0644));
    }
    if (syscall(SYS_move_mount, tree.get(), "", AT_FDCWD, path.c_str(), 4 /* MOVE_MOUNT_F_EMPTY_PATH */) != 0)
      fail("cannot show " + path);
  }
  mkdir("/run/lock", 01777);
  mkdir("/dev/pts", 0755);
  mount_at("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "gid=5,mode=620,ptmxmode=666");
  mkdir("/dev/shm", 01777);
  mount_at("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
  symlink("/proc/self/fd", "/dev/fd");
  symlink("/proc/self/fd/0", "/dev/stdin");
  symlink("/proc/self/fd/1", "/dev/stdout");
  symlink("/proc/self/fd/2", "/dev/stderr");
  mount_at("tracefs", "/sys/kernel/tracing", "tracefs", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr);
  mount_at("debugfs", "/sys/kernel/debug", "debugfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr);
  mount_at("cgroup2", "/sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr);
}

void mount_out(const std::string& out) {
  if (out.empty()) return;
  make_directories(out);
  // cache=mmap: what is written is on the outer machine when write() returns, and mmap works.
  mount_at("out", out, "9p", MS_NOSUID | MS_NODEV,
           "trans=virtio,version=9p2000.L,msize=512000,cache=mmap,access=client");
}

// The number of group kvm. Where the outer machine has no such group (udev's package makes it), L1 gets an /etc/group
// with one.
gid_t kvm_group() {
  std::string groups = read_file("/etc/group");
  std::set<gid_t> taken;
  std::istringstream lines(groups);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);  // name:password:number:members
    std::string name, password, number;
    std::getline(fields, name, ':');
    std::getline(fields, password, ':');
    std::getline(fields, number, ':');
    const auto group = static_cast<gid_t>(std::strtoul(number.c_str(), nullptr, 10));
    if (name == "kvm") return group;
    taken.insert(group);
  }
  gid_t free = 999;  // the last of Debian's system groups
  while (taken.count(free) != 0) --free;
  groups += "kvm:x:" + std::to_string(free) + ":\n";
  std::ofstream("/run/group") << groups;
  mount_at("/run/group", "/etc/group", nullptr, MS_BIND, nullptr);
  return free;
}

// What udev does on Debian (rules.d/50-udev-default.rules): /dev/kvm for group kvm.
void open_kvm_to_group() {
  if (chown("/dev/kvm", 0, kvm_group()) != 0 || chmod("/dev/kvm", 0660) != 0) fail("no /dev/kvm in L1");
  for (const char* path : {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}) {
    chmod(path, 0666);
  }
}

// The command may talk TCP to itself (tcp-pingpong's native run does): 127.0.0.1 needs its interface up.
void bring_up_loopback() {
  const UniqueFd any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  if (any.get() < 0 || ioctl(any.get(), SIOCSIFFLAGS, &request) != 0) fail("cannot bring up the loopback interface");
}

void write_all(int fd, const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t written = write(fd, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    data += written;
    size -= static_cast<std::size_t>(written);
  }
}

// write() to a virtio port returns when the buffer is queued; the port is writable again when QEMU has consumed it.
void drain(int port) {
  pollfd entry{port, POLLOUT, 0};
  while (poll(&entry, 1, -1) < 0 && errno == EINTR) {
  }
}

void copy(int from, int to) {
  std::vector<char> buffer(32768);  // the largest write that virtio_console takes (port_fops_write)
  for (;;) {
    const ssize_t got = read(from, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    write_all(to, buffer.data(), static_cast<std::size_t>(got));
  }
  drain(to);
}

// Ports appear a moment after the driver has talked to QEMU.
UniqueFd open_port(int number, int mode) {
  const std::string path = "/dev/vport0p" + std::to_string(number);
  for (int attempt = 0;; ++attempt) {
    UniqueFd fd(open(path.c_str(), mode | O_CLOEXEC));
    if (fd.get() >= 0) return fd;
    if (attempt == 5000) fail("cannot open " + path);
    usleep(1000);
  }
}

[[noreturn]] void run_child(const Job& job, int out, int err) {
  setsid();
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  close_range(3, ~0U, 0);
  std::vector<char*> argv;
  std::vector<char*> envp;
  for (const std::string& word : job.args) argv.push_back(const_cast<char*>(word.c_str()));
  for (const std::string& word : job.env) {
    envp.push_back(const_cast<char*>(word.c_str()));
    if (word.rfind("PATH=", 0) == 0) putenv(envp.back());  // execvpe searches the caller's PATH
  }
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  if (chdir(job.cwd.c_str()) != 0) {
    dprintf(STDERR_FILENO, "nested-host: %s: %s in L1\n", job.cwd.c_str(), std::strerror(errno));
    _exit(126);
  }
  execvpe(argv[0], argv.data(), envp.data());
  const int error = errno;
  dprintf(STDERR_FILENO, "nested-host: %s: %s\n", argv[0], std::strerror(error));
  _exit(error == ENOENT ? 127 : 126);
}

std::string run(const Job& job, int status_port, int out_port, int err_port) {
  int out[2];
  int err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) fail("cannot make a pipe");
  dprintf(status_port, "ready\n");
  const pid_t child = fork();
  if (child < 0) fail("cannot fork");
  if (child == 0) run_child(job, out[1], err[1]);
  close(out[1]);
  close(err[1]);
  std::thread out_copy(copy, out[0], out_port);
  std::thread err_copy(copy, err[0], err_port);
  int status = 0;
  for (;;) {
    const pid_t ended = waitpid(-1, &status, 0);
    if (ended == child) break;
    if (ended < 0 && errno != EINTR) fail("lost the command");
  }
  // What the command left running would hold the pipes open: end it, as the end of a machine does.
  kill(-1, SIGKILL);
  out_copy.join();
  err_copy.join();
  sync();
  return WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                             : "exit " + std::to_string(WEXITSTATUS(status));
}

// nested.NAME=a=1,b=2 of the kernel command line: "a=1 b=2".
std::string module_parameters(const std::string& name) {
  std::istringstream words(read_file("/proc/cmdline"));
  const std::string key = "nested." + name + "=";
  for (std::string word; words >> word;) {
    if (word.rfind(key, 0) != 0) continue;
    std::string parameters = word.substr(key.size());
    std::replace(parameters.begin(), parameters.end(), ',', ' ');
    return parameters;
  }
  return "";
}

// The TSC is calibrated again about a second after boot. A state that is saved before would do that in every run, and
// KVM would start with the coarse value.
void wait_for_calibration() {
  for (int attempt = 0; attempt < 300; ++attempt) {
    if (read_file("/sys/devices/system/clocksource/clocksource0/current_clocksource") != "tsc-early\n") return;
    usleep(10000);
  }
}

struct Order {
  long long microseconds = 0;
  std::string entropy;
  std::string job_path;
};

Order wait_for_order(int status_port) {
  std::string line;
  for (char byte = 0; byte != '\n';) {
    const ssize_t got = read(status_port, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw SetupError("no job came");
    line += byte;
  }
  Order order;
  std::string word;
  std::istringstream words(line);
  if (!(words >> word >> order.microseconds >> order.entropy >> order.job_path) || word != "job")
    throw SetupError("not a job: " + line);
  return order;
}

// A resumed machine has the time of day and the random numbers of the moment when its state was saved.
void freshen(const Order& order) {
  const timespec now{order.microseconds / 1000000, (order.microseconds % 1000000) * 1000};
  if (clock_settime(CLOCK_REALTIME, &now) != 0) fail("cannot set the time");
  const UniqueFd random(open("/dev/urandom", O_WRONLY | O_CLOEXEC));
  write_all(random.get(), order.entropy.data(), order.entropy.size());
  if (ioctl(random.get(), RNDRESEEDCRNG) != 0) fail("cannot reseed /dev/urandom");
}

// How long a thread was blocked, the scheduler counts only when asked to (a static key, too).
void count_blocked_time() {
  const UniqueFd schedstats(open("/proc/sys/kernel/sched_schedstats", O_WRONLY | O_CLOEXEC));
  if (schedstats.get() >= 0) write_all(schedstats.get(), "1", 1);
}

// The kernel patches its own text when the first VM is created, the first tracepoint counted, the first local APIC
// disabled (static keys: preempt_notifier_key, apic_sw_disabled, kvm_has_noapic_vcpu, one a tracepoint), and back after
// the last. QEMU 7.2 translates code without locking its page, so a CPU that translates while another patches can keep
// a stale INT3
// ("Oops: int3" in __schedule() was seen, after 59 s of starting and ending VMs). Held for as long as L1 lives, these
// keys change once, before the command starts, and never again. What cannot be had is not needed.
std::vector<UniqueFd> hold_static_keys() {
  std::vector<UniqueFd> held;
  const auto hold = [&held](int fd) {
    if (fd >= 0) held.emplace_back(fd);
    return fd;
  };
  const int kvm = hold(open("/dev/kvm", O_RDWR | O_CLOEXEC));
  for (const bool irqchip : {true, false}) {
    const int vm = hold(kvm < 0 ? -1 : ioctl(kvm, KVM_CREATE_VM, 0));
    if (vm < 0) continue;
    if (irqchip) ioctl(vm, KVM_CREATE_IRQCHIP, 0);
    hold(ioctl(vm, KVM_CREATE_VCPU, 0));
  }
  mkdir("/l1-tracing", 0755);
  if (mount("tracefs", "/l1-tracing", "tracefs", 0, nullptr) != 0) return held;
  for (const char* event : {"kvm_entry", "kvm_exit", "kvm_apic_ipi", "kvm_apic_accept_irq", "kvm_inj_virq",
                            "kvm_hypercall", "kvm_vcpu_wakeup", "kvm_halt_poll_ns"}) {
    std::ifstream file(std::string("/l1-tracing/events/kvm/") + event + "/id");
    perf_event_attr attributes{};
    if (!(file >> attributes.config)) continue;
    attributes.size = sizeof attributes;
    attributes.type = PERF_TYPE_TRACEPOINT;
    // This process never runs a vCPU, so these count nothing.
    hold(static_cast<int>(syscall(SYS_perf_event_open, &attributes, getpid(), -1, -1, PERF_FLAG_FD_CLOEXEC)));
  }
  umount("/l1-tracing");
  return held;
}

}  // namespace

int main() {
  UniqueFd status_port(-1);
  std::string ending;
  try {
    for (const char* directory : {"/dev", "/proc", "/sys"}) mkdir(directory, 0755);
    mount_at("devtmpfs", "/dev", "devtmpfs", MS_NOSUID, "mode=0755");
    mount_at("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr);
    mount_at("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr);
    for (const Module& module : read_module_list()) load_module(module, module_parameters(module.name));
    status_port = open_port(1, O_RDWR);
    const UniqueFd out_port = open_port(2, O_WRONLY);
    const UniqueFd err_port = open_port(3, O_WRONLY);
    bring_up_loopback();
    sethostname("nested-host", 11);
    wait_for_calibration();
    const std::vector<UniqueFd> static_keys = hold_static_keys();
    count_blocked_time();
    dprintf(status_port.get(), "waiting\n");
    const Order order = wait_for_order(status_port.get());
    freshen(order);
    make_root("/host");
    const Job job = read_job("/host" + order.job_path);
    enter_root("/host");
    mount_temporary(job);
    mount_out(job.out);
    open_kvm_to_group();
    ending = run(job, status_port.get(), out_port.get(), err_port.get());
  } catch (const std::exception& error) {
    ending = std::string("fail ") + error.what();
    std::fprintf(stderr, "nested-host L1: %s\n", error.what());
  }
  if (status_port.get() >= 0) {
    dprintf(status_port.get(), "%s\n", ending.c_str());
    drain(status_port.get());
  }
  // nested-host ends QEMU on that line; this is for when it does not.
  sleep(5);
  reboot(RB_POWER_OFF);
  return 0;
}
