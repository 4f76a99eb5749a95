// SPDX-License-Identifier: Apache-2.0
// The few ACPI Machine Language encodings that our DSDT needs (ACPI 6.5, chapter 20; resources: chapter 6.4). Each
// function returns the encoding of its term; they nest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace vmm::boot::aml {

using Bytes = std::vector<std::byte>;

Bytes concatenate(std::initializer_list<Bytes> parts);

// A name as it is encoded: segments of exactly four characters, after a root character or not ("\\_SB_", "_HID").
Bytes name_string(std::string_view name);
Bytes integer(std::uint32_t value);   // the shortest form (20.2.3)
Bytes string(std::string_view text);  // ASCII
Bytes eisa_id(std::string_view id);   // "PNP0501" (19.6.37)
Bytes package(std::initializer_list<Bytes> elements);
Bytes buffer(const Bytes& bytes);

Bytes name(std::string_view name, const Bytes& value);    // Name (name, value)
Bytes scope(std::string_view name, const Bytes& terms);   // Scope (name) { terms }
Bytes device(std::string_view name, const Bytes& terms);  // Device (name) { terms }

// Resource descriptors, for resource_template().
Bytes io(std::uint16_t port, std::uint8_t length);  // fixed, 16-bit decode (6.4.2.5)
Bytes irq(std::uint8_t number);                     // edge, active high, exclusive (6.4.2.1)
Bytes resource_template(std::initializer_list<Bytes> descriptors);

}  // namespace vmm::boot::aml
