// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace vmm::experiment {

// A self-contained page of a result of `vmm compare`: verdicts, plots (gnuplot, inline SVG), tables, the host. No
// script, no network, light and dark, fit for a phone. Throws base::BadInput for a document of another form, HostUnable
// without gnuplot. `document` is hostile: none of its text reaches gnuplot but letters, digits and a few signs.
std::string html_report(const nlohmann::ordered_json& document);

// A name as gnuplot may see it: everything but letters, digits, blank and "=.,:()+-_%" is "?". Pure.
std::string plot_label(std::string_view text);

}  // namespace vmm::experiment
