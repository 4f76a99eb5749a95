// SPDX-License-Identifier: Apache-2.0
#include "boot/aml.hpp"

#include <charconv>

namespace vmm::boot::aml {
namespace {

constexpr unsigned kZeroOp = 0x00;
constexpr unsigned kOneOp = 0x01;
constexpr unsigned kNameOp = 0x08;
constexpr unsigned kBytePrefix = 0x0a;
constexpr unsigned kWordPrefix = 0x0b;
constexpr unsigned kDwordPrefix = 0x0c;
constexpr unsigned kStringPrefix = 0x0d;
constexpr unsigned kScopeOp = 0x10;
constexpr unsigned kBufferOp = 0x11;
constexpr unsigned kPackageOp = 0x12;
constexpr unsigned kExtOpPrefix = 0x5b;
constexpr unsigned kDeviceOp = 0x82;

constexpr unsigned kIoDescriptor = 0x47;   // small, type 8, 7 bytes
constexpr unsigned kIrqDescriptor = 0x22;  // small, type 4, 2 bytes: no flags
constexpr unsigned kEndTag = 0x79;
constexpr unsigned kDecode16 = 1;

Bytes raw(std::initializer_list<unsigned> values) {
  Bytes bytes;
  for (const unsigned value : values) bytes.push_back(static_cast<std::byte>(value & 0xff));
  return bytes;
}

void append(Bytes& bytes, const Bytes& more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

// PkgLength counts itself (20.2.4): one byte to 63, else 4 bits and one to three further bytes.
Bytes with_length(const Bytes& content) {
  Bytes bytes;
  if (content.size() + 1 <= 0x3f) {
    bytes = raw({static_cast<unsigned>(content.size() + 1)});
  } else {
    unsigned following = 1;
    while (content.size() + 1 + following >= (std::size_t{1} << (4 + 8 * following))) ++following;
    const auto length = static_cast<unsigned>(content.size() + 1 + following);
    bytes = raw({following << 6 | (length & 0xf)});
    for (unsigned i = 0; i < following; ++i) append(bytes, raw({length >> (4 + 8 * i)}));
  }
  append(bytes, content);
  return bytes;
}

}  // namespace

Bytes concatenate(std::initializer_list<Bytes> parts) {
  Bytes bytes;
  for (const Bytes& part : parts) append(bytes, part);
  return bytes;
}

Bytes name_string(std::string_view name) {
  Bytes bytes;
  for (const char c : name) bytes.push_back(static_cast<std::byte>(c));
  return bytes;
}

Bytes integer(std::uint32_t value) {
  if (value == 0) return raw({kZeroOp});
  if (value == 1) return raw({kOneOp});
  if (value <= 0xff) return raw({kBytePrefix, value});
  if (value <= 0xffff) return raw({kWordPrefix, value, value >> 8});
  return raw({kDwordPrefix, value, value >> 8, value >> 16, value >> 24});
}

Bytes string(std::string_view text) {
  return concatenate({raw({kStringPrefix}), name_string(text), raw({0})});
}

Bytes eisa_id(std::string_view id) {
  // Three letters of five bits each, then four hexadecimal digits, most significant byte first.
  const auto letter = [id](std::size_t i) { return static_cast<unsigned>(id[i] - '@') & 0x1f; };
  const unsigned letters = letter(0) << 10 | letter(1) << 5 | letter(2);
  unsigned digits = 0;
  std::from_chars(id.data() + 3, id.data() + id.size(), digits, 16);
  return raw({kDwordPrefix, letters >> 8, letters, digits >> 8, digits});
}

Bytes package(std::initializer_list<Bytes> elements) {
  Bytes content = raw({static_cast<unsigned>(elements.size())});
  append(content, concatenate(elements));
  return concatenate({raw({kPackageOp}), with_length(content)});
}

Bytes buffer(const Bytes& bytes) {
  return concatenate(
      {raw({kBufferOp}), with_length(concatenate({integer(static_cast<std::uint32_t>(bytes.size())), bytes}))});
}

Bytes name(std::string_view name, const Bytes& value) {
  return concatenate({raw({kNameOp}), name_string(name), value});
}

Bytes scope(std::string_view name, const Bytes& terms) {
  return concatenate({raw({kScopeOp}), with_length(concatenate({name_string(name), terms}))});
}

Bytes device(std::string_view name, const Bytes& terms) {
  return concatenate({raw({kExtOpPrefix, kDeviceOp}), with_length(concatenate({name_string(name), terms}))});
}

Bytes io(std::uint16_t port, std::uint8_t length) {
  const unsigned low = port;
  const unsigned high = low >> 8;
  return raw({kIoDescriptor, kDecode16, low, high, low, high, 1, length});
}

Bytes irq(std::uint8_t number) {
  const unsigned mask = 1U << number;
  return raw({kIrqDescriptor, mask, mask >> 8});
}

Bytes resource_template(std::initializer_list<Bytes> descriptors) {
  // A checksum of 0 in the end tag means that there is none (6.4.2.9).
  return buffer(concatenate({concatenate(descriptors), raw({kEndTag, 0})}));
}

}  // namespace vmm::boot::aml
