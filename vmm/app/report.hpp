// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "app/options.hpp"

namespace vmm::app {

// `vmm report FILE.json`: the table of a result file, on standard output. Throws BadInput for a file that is none.
int report(const ReportCommand& command);

}  // namespace vmm::app
