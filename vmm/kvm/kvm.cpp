// SPDX-License-Identifier: Apache-2.0
#include "kvm/kvm.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include "base/error.hpp"
#include "base/ioctl.hpp"
#include "kvm/capabilities.hpp"

namespace vmm::kvm {
namespace {

constexpr int kApiVersion = 12;  // KVM API 4.1: the only version there will be

// The variable-length structures of the API are a header and entries behind it. The kernel's own declarations cannot be
// used: in C++ their flexible array member (__DECLARE_FLEX_ARRAY, linux/stddef.h) begins with an empty struct of one
// byte, which moves the entries and, through sizeof, the request numbers.
struct ListHeader {
  std::uint32_t count;
  std::uint32_t padding;
};
constexpr unsigned long kGetSupportedCpuid = _IOWR(KVMIO, 0x05, ListHeader);
constexpr unsigned long kSetCpuid2 = _IOW(KVMIO, 0x90, ListHeader);
constexpr unsigned long kSetMsrs = _IOW(KVMIO, 0x89, ListHeader);

template <typename Entry>
class List {
 public:
  explicit List(std::size_t entries) : storage_(sizeof(ListHeader) + entries * sizeof(Entry)) {
    const ListHeader header{static_cast<std::uint32_t>(entries), 0};
    std::memcpy(storage_.data(), &header, sizeof header);
  }
  explicit List(std::span<const Entry> entries) : List(entries.size()) {
    if (!entries.empty()) std::memcpy(storage_.data() + sizeof(ListHeader), entries.data(), entries.size_bytes());
  }
  void* data() noexcept { return storage_.data(); }
  // As many entries as the header says now.
  std::vector<Entry> entries() const {
    ListHeader header{};
    std::memcpy(&header, storage_.data(), sizeof header);
    std::vector<Entry> result(std::min<std::size_t>(header.count, (storage_.size() - sizeof header) / sizeof(Entry)));
    if (!result.empty()) std::memcpy(result.data(), storage_.data() + sizeof header, result.size() * sizeof(Entry));
    return result;
  }

 private:
  std::vector<std::byte> storage_;
};

int checked(int fd, unsigned long request, std::uintptr_t argument, const char* name) {
  return base::ioctl(fd, request, argument, name);
}

template <typename T>
T get(int fd, unsigned long request, const char* name) {
  T value{};
  base::ioctl(fd, request, &value, name);
  return value;
}

std::optional<base::UniqueFd> stats_fd_of(int fd) {
  const int result = base::try_ioctl(fd, KVM_GET_STATS_FD, std::uintptr_t{0});
  if (result < 0) return std::nullopt;
  return base::UniqueFd(result);
}

base::UniqueFd open_device(const std::filesystem::path& device) {
  base::UniqueFd fd(::open(device.c_str(), O_RDWR | O_CLOEXEC));
  if (fd) return fd;
  const int error = errno;
  const char* remedy = "is this a KVM device?";
  if (error == ENOENT || error == ENXIO || error == ENODEV) {
    remedy =
        "load kvm_intel or kvm_amd, enable virtualization in the firmware or nested virtualization on the host; "
        "`tests/nested/nested-host -- vmm …` works without";
  } else if (error == EACCES || error == EPERM) {
    remedy = "join its group (`adduser $USER kvm`, then log in again) or run as root";
  }
  throw base::HostUnable(fmt::format("{}: {}: {}", device.string(), base::errno_text(error), remedy));
}

}  // namespace

// ---- System ----

System::System(const std::filesystem::path& device) : fd_(open_device(device)) {
  const int version = base::try_ioctl(fd_.get(), KVM_GET_API_VERSION, std::uintptr_t{0});
  if (version != kApiVersion) {
    throw base::HostUnable(
        version < 0
            ? fmt::format("{}: not a KVM device: KVM_GET_API_VERSION: {}", device.string(), base::errno_text(-version))
            : fmt::format("{}: KVM API version {}, {} is needed", device.string(), version, kApiVersion));
  }
}

int System::extension(long capability) const noexcept {
  return std::max(0, base::try_ioctl(fd_.get(), KVM_CHECK_EXTENSION, static_cast<std::uintptr_t>(capability)));
}

void System::require_capabilities() const {
  std::string missing;
  for (const Capability& capability : kCapabilities) {
    if (capability.need == Need::kRequired && extension(capability.number) == 0) {
      missing += fmt::format("{}{} ({})", missing.empty() ? "" : ", ", capability.name, capability.used_for);
    }
  }
  if (!missing.empty())
    throw base::HostUnable(fmt::format("this host's KVM lacks {}; Linux 5.10 or later has it", missing));
}

std::vector<kvm_cpuid_entry2> System::supported_cpuid() const {
  // KVM says E2BIG when the array is too short (4.46): grow until it fits.
  for (std::size_t entries = 128;; entries *= 2) {
    List<kvm_cpuid_entry2> list(entries);
    const int result = base::try_ioctl(fd_.get(), kGetSupportedCpuid, list.data());
    if (result == -E2BIG && entries < 65536) continue;
    if (result < 0) throw base::SystemError("KVM_GET_SUPPORTED_CPUID", -result);
    return list.entries();
  }
}

unsigned System::maximum_vcpus() const noexcept {
  const int maximum = extension(KVM_CAP_MAX_VCPUS);
  if (maximum > 0) return static_cast<unsigned>(maximum);
  return static_cast<unsigned>(std::max(4, extension(KVM_CAP_NR_VCPUS)));  // 4.4: 4 when neither is known
}

Vm System::create_vm() const {
  const int run_bytes = checked(fd_.get(), KVM_GET_VCPU_MMAP_SIZE, 0, "KVM_GET_VCPU_MMAP_SIZE");
  // EINTR: a signal was pending while KVM waited for the other CPUs.
  int result = 0;
  do {
    result = base::try_ioctl(fd_.get(), KVM_CREATE_VM, std::uintptr_t{0});
  } while (result == -EINTR);
  if (result == -EBUSY) {
    throw base::HostUnable(
        fmt::format("KVM_CREATE_VM: {}: another hypervisor holds the CPU's virtualization extensions; stop it "
                    "(VirtualBox, VMware, ...)",
                    base::errno_text(EBUSY)));
  }
  if (result < 0) throw base::SystemError("KVM_CREATE_VM", -result);
  return {base::UniqueFd(result), static_cast<std::size_t>(run_bytes)};
}

// ---- Vm ----

int Vm::extension(long capability) const noexcept {
  return std::max(0, base::try_ioctl(fd_.get(), KVM_CHECK_EXTENSION, static_cast<std::uintptr_t>(capability)));
}

void Vm::set_tss_address(std::uint64_t address) {
  checked(fd_.get(), KVM_SET_TSS_ADDR, address, "KVM_SET_TSS_ADDR");
}

void Vm::set_identity_map_address(std::uint64_t address) {
  base::ioctl(fd_.get(), KVM_SET_IDENTITY_MAP_ADDR, &address, "KVM_SET_IDENTITY_MAP_ADDR");
}

void Vm::create_irqchip() {
  checked(fd_.get(), KVM_CREATE_IRQCHIP, 0, "KVM_CREATE_IRQCHIP");
}

void Vm::create_pit() {
  kvm_pit_config config{};
  config.flags = KVM_PIT_SPEAKER_DUMMY;
  base::ioctl(fd_.get(), KVM_CREATE_PIT2, &config, "KVM_CREATE_PIT2");
}

void Vm::set_memory(std::uint32_t slot, std::uint64_t guest_address, std::uint64_t bytes, std::byte* host) {
  kvm_userspace_memory_region region{};
  region.slot = slot;
  region.guest_phys_addr = guest_address;
  region.memory_size = bytes;
  region.userspace_addr = reinterpret_cast<std::uintptr_t>(host);
  base::ioctl(fd_.get(), KVM_SET_USER_MEMORY_REGION, &region, "KVM_SET_USER_MEMORY_REGION");
}

void Vm::set_halt_poll_ns(std::uint64_t nanoseconds) {
  kvm_enable_cap request{};
  request.cap = KVM_CAP_HALT_POLL;
  request.args[0] = nanoseconds;
  base::ioctl(fd_.get(), KVM_ENABLE_CAP, &request, "KVM_ENABLE_CAP(KVM_CAP_HALT_POLL)");
}

void Vm::disable_exits(std::uint64_t mask) {
  kvm_enable_cap request{};
  request.cap = KVM_CAP_X86_DISABLE_EXITS;
  request.args[0] = mask;
  base::ioctl(fd_.get(), KVM_ENABLE_CAP, &request, "KVM_ENABLE_CAP(KVM_CAP_X86_DISABLE_EXITS)");
}

void Vm::set_irq_line(std::uint32_t gsi, bool level) {
  kvm_irq_level request{};
  request.irq = gsi;
  request.level = level ? 1 : 0;
  base::ioctl(fd_.get(), KVM_IRQ_LINE, &request, "KVM_IRQ_LINE");
}

std::optional<base::UniqueFd> Vm::stats_fd() const {
  return stats_fd_of(fd_.get());
}

Vcpu Vm::create_vcpu(unsigned id) {
  base::UniqueFd fd(checked(fd_.get(), KVM_CREATE_VCPU, id, "KVM_CREATE_VCPU"));
  base::Mapping run = base::Mapping::of_file(fd.get(), run_bytes_, 0, PROT_READ | PROT_WRITE, MAP_SHARED, "kvm_run");
  return {id, std::move(fd), std::move(run)};
}

// ---- Vcpu ----

int Vcpu::run() noexcept {
  return base::try_ioctl(fd_.get(), KVM_RUN, std::uintptr_t{0});
}

kvm_regs Vcpu::registers() const {
  return get<kvm_regs>(fd_.get(), KVM_GET_REGS, "KVM_GET_REGS");
}
void Vcpu::set_registers(const kvm_regs& registers) {
  base::ioctl(fd_.get(), KVM_SET_REGS, &registers, "KVM_SET_REGS");
}

kvm_sregs Vcpu::special_registers() const {
  return get<kvm_sregs>(fd_.get(), KVM_GET_SREGS, "KVM_GET_SREGS");
}
void Vcpu::set_special_registers(const kvm_sregs& registers) {
  base::ioctl(fd_.get(), KVM_SET_SREGS, &registers, "KVM_SET_SREGS");
}

void Vcpu::set_fpu(const kvm_fpu& fpu) {
  base::ioctl(fd_.get(), KVM_SET_FPU, &fpu, "KVM_SET_FPU");
}

void Vcpu::set_cpuid(std::span<const kvm_cpuid_entry2> entries) {
  base::ioctl(fd_.get(), kSetCpuid2, List(entries).data(), "KVM_SET_CPUID2");
}

void Vcpu::set_msrs(std::span<const kvm_msr_entry> entries) {
  const int set = base::ioctl(fd_.get(), kSetMsrs, List(entries).data(), "KVM_SET_MSRS");
  if (static_cast<std::size_t>(set) != entries.size()) {
    throw base::HostUnable(fmt::format("KVM_SET_MSRS: this host's KVM refuses MSR {:#x} (value {:#x})",
                                       entries[static_cast<std::size_t>(set)].index,
                                       entries[static_cast<std::size_t>(set)].data));
  }
}

void Vcpu::set_mp_state(std::uint32_t state) {
  kvm_mp_state request{};
  request.mp_state = state;
  base::ioctl(fd_.get(), KVM_SET_MP_STATE, &request, "KVM_SET_MP_STATE");
}

std::uint32_t Vcpu::mp_state() const {
  return get<kvm_mp_state>(fd_.get(), KVM_GET_MP_STATE, "KVM_GET_MP_STATE").mp_state;
}

kvm_lapic_state Vcpu::local_apic() const {
  return get<kvm_lapic_state>(fd_.get(), KVM_GET_LAPIC, "KVM_GET_LAPIC");
}
void Vcpu::set_local_apic(const kvm_lapic_state& state) {
  base::ioctl(fd_.get(), KVM_SET_LAPIC, &state, "KVM_SET_LAPIC");
}

std::optional<std::uint64_t> Vcpu::tsc_khz() const {
  const int khz = base::try_ioctl(fd_.get(), KVM_GET_TSC_KHZ, std::uintptr_t{0});
  if (khz <= 0) return std::nullopt;
  return static_cast<std::uint64_t>(khz);
}

std::optional<std::uint64_t> Vcpu::translate(std::uint64_t linear_address) const {
  kvm_translation request{};
  request.linear_address = linear_address;
  if (base::try_ioctl(fd_.get(), KVM_TRANSLATE, &request) < 0 || request.valid == 0) return std::nullopt;
  return request.physical_address;
}

std::optional<base::UniqueFd> Vcpu::stats_fd() const {
  return stats_fd_of(fd_.get());
}

bool Vcpu::clock_control() noexcept {
  return base::try_ioctl(fd_.get(), KVM_KVMCLOCK_CTRL, std::uintptr_t{0}) == 0;
}

}  // namespace vmm::kvm
