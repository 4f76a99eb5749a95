// SPDX-License-Identifier: Apache-2.0
// Preloaded into a vmm: KVM_CREATE_VM fails as it does while another hypervisor holds the virtualization extensions
// (kvm_enable_virtualization() in virt/kvm/kvm_main.c). Everything else goes to the kernel.
#include <cerrno>
#include <cstdarg>
#include <linux/kvm.h>
#include <sys/syscall.h>
#include <unistd.h>

extern "C" int ioctl(int fd, unsigned long request, ...) {
  std::va_list arguments;
  va_start(arguments, request);
  const unsigned long argument = va_arg(arguments, unsigned long);
  va_end(arguments);
  if (request == KVM_CREATE_VM) {
    errno = EBUSY;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_ioctl, fd, request, argument));
}
