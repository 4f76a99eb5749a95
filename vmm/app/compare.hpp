// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "app/options.hpp"

namespace vmm::app {

// `vmm compare`: reads the comparison's file, where there is one, and runs it. Throws BadInput.
int compare(CompareCommand command);

// `vmm check`: a line for each number that moved; JUnit XML on request. Status 0 or 1; throws BadInput.
int check(const CheckCommand& command);

}  // namespace vmm::app
