// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "app/options.hpp"

namespace vmm::app {

// `vmm doctor`: what this host's KVM offers by name, what small payloads find out by trying, and what to do about each
// lack. Report on standard output. Status 0 when a Linux guest can run directly on this host, else 3.
int doctor(const DoctorCommand& command);

}  // namespace vmm::app
