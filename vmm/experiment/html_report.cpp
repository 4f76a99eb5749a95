// SPDX-License-Identifier: Apache-2.0
#include "experiment/html_report.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <span>

#include "base/error.hpp"
#include "base/filter.hpp"
#include "experiment/compare_analysis.hpp"
#include "experiment/compare_report.hpp"
#include "experiment/markup.hpp"

namespace vmm::experiment {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kPlotWidth = 760;
constexpr int kRowHeight = 30;
constexpr int kPlotMargin = 110;
constexpr int kPlotHeight = 380;
constexpr std::size_t kLabelMaximum = 40;
constexpr std::size_t kCurvesMaximum = 12;

// Colours that keep 3:1 against white and against the dark page (Okabe and Ito's, the pale ones darkened).
constexpr std::array<const char*, 8> kColours = {"#0072b2", "#c65300", "#00805a", "#b0559a",
                                                 "#8a6d00", "#2f7fb8", "#7a5cc8", "#777777"};

constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--page:#fff;--text:#1b1f24;--soft:#57606a;--line:#d0d7de;--warn:#8a2b06;--box:#f6f8fa}
@media(prefers-color-scheme:dark){:root{--page:#0f1318;--text:#e6edf3;--soft:#9ea7b3;--line:#3d444d;--warn:#ffa657;--box:#171c23}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:62rem;padding:1rem;background:var(--page);color:var(--text);font:1rem/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;line-height:1.25}h2{font-size:1.15rem;margin-top:2.2rem}
p,li{max-width:46rem}.soft{color:var(--soft)}
.warn{border-left:4px solid var(--warn);background:var(--box);padding:.5rem .8rem;margin:.5rem 0;overflow-wrap:anywhere}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.92rem}
th,td{padding:.3rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left}
figure{margin:1rem 0}figcaption{color:var(--soft);font-size:.92rem}
figure svg{max-width:100%;min-width:36rem;height:auto;color:var(--text)}
pre{overflow-x:auto;background:var(--box);padding:.8rem;font-size:.8rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem .8rem}dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
)";

std::string number(std::optional<double> value, int digits = 3) {
  if (!value) return "–";
  if (*value == 0) return "0";
  if (*value >= 1000) return fmt::format("{:.0f}", *value);
  return fmt::format("{:.{}g}", *value, digits);
}

std::optional<double> median_of(const ArmAnalysis& arm, Metric metric) {
  return arm.medians.at(static_cast<std::size_t>(metric));
}

std::vector<const ArmAnalysis*> guests_of(const Analysis& analysis) {
  std::vector<const ArmAnalysis*> arms;
  for (const ArmAnalysis& arm : analysis.arms) {
    if (!arm.host && arm.valid > 0) arms.push_back(&arm);
  }
  return arms;
}

// ---- Plots: each a gnuplot script that only has numbers and labels of ours ----

std::string preamble(int height) {
  std::string text = fmt::format(
      "set terminal svg size {},{} dynamic enhanced font 'sans-serif,13'\nset termoption noenhanced\n"
      "set grid lc rgb '#888888' lw 0.5\nset tics nomirror\nset border 3\n",
      kPlotWidth, height);
  for (std::size_t i = 0; i < kColours.size(); ++i) {
    text += fmt::format("set linetype {} lc rgb '{}' lw 2 pt 7 ps 0.7\n", i + 1, kColours.at(i));
  }
  return text + fmt::format("set linetype cycle {}\n", kColours.size());
}

// Row labels on the y axis, the first row on top.
std::string row_labels(std::span<const ArmAnalysis* const> arms) {
  std::string text = "set ytics (";
  for (std::size_t i = 0; i < arms.size(); ++i) {
    text += fmt::format("{}'{}' {}", i == 0 ? "" : ", ", plot_label(arms[i]->shown), i);
  }
  return text + fmt::format(")\nset yrange [{}.6:-0.6]\n", arms.size() - 1);
}

int rows_height(std::size_t rows) {
  return kPlotMargin + kRowHeight * static_cast<int>(rows);
}

std::string ratio_plot(std::span<const ArmAnalysis* const> arms) {
  std::string data;
  for (std::size_t i = 0; i < arms.size(); ++i) {
    const auto& ratio = arms[i]->to_baseline;
    if (!ratio) {
      data += fmt::format("1 {} 1 1\n", i);  // the baseline itself
      continue;
    }
    const stats::Interval interval = ratio->interval.value_or(stats::Interval{ratio->median, ratio->median});
    data += fmt::format("{} {} {} {}\n", ratio->median, i, interval.low, interval.high);
  }
  return preamble(rows_height(arms.size())) + "$rows << END\n" + data + "END\n" + row_labels(arms) +
         "set key off\nset xrange [*<0.9:1.1<*]\nset xlabel 'time / time of the baseline, with its 95 % interval (left "
         "of 1 is faster)'\n"
         "set arrow from 1, graph 0 to 1, graph 1 nohead lc rgb '#888888' lw 1.5\n"
         "plot $rows using 1:2:3:4 with xerrorbars lt 1\n";
}

std::string bars_plot(std::span<const ArmAnalysis* const> arms) {
  std::string data;
  bool any = false;
  for (std::size_t i = 0; i < arms.size(); ++i) {
    const auto value = [&](Metric metric) {
      const auto median = median_of(*arms[i], metric);
      any = any || median;
      return median ? fmt::format("{}", *median) : std::string("NaN");
    };
    data += fmt::format("{} {} {}\n", i, value(Metric::kHltExits), value(Metric::kIpis));
  }
  if (!any) return {};
  return preamble(rows_height(arms.size()) + 20) + "$rows << END\n" + data + "END\n" + row_labels(arms) +
         "set key outside top right horizontal\nset xrange [0:*]\nset xlabel 'events an operation, both vCPUs'\nset "
         "style fill solid\n"
         "plot $rows using ($2/2):($1-0.18):($2/2):(0.15) with boxxyerror lt 1 title 'HLT exits', "
         "$rows using ($3/2):($1+0.18):($3/2):(0.15) with boxxyerror lt 2 title 'IPIs injected'\n";
}

std::string pareto_plot(std::span<const ArmAnalysis* const> arms) {
  std::string script = preamble(kPlotHeight) +
                       "set key outside right top\nset xlabel 'cost: CPU time of the vCPU threads, us an operation'\n"
                       "set ylabel 'seconds a trial'\nset offsets graph 0.08, graph 0.08, graph 0.1, graph 0.1\n";
  std::string plots;
  for (std::size_t i = 0; i < arms.size(); ++i) {
    const auto cost = median_of(*arms[i], Metric::kCpuOnUs);
    const auto seconds = median_of(*arms[i], Metric::kSeconds);
    if (!cost || !seconds) continue;
    script += fmt::format("$point{} << END\n{} {}\nEND\n", i, *cost, *seconds);
    plots += fmt::format("{}$point{} with points lt {} pt {} ps 1.2 title '{}'", plots.empty() ? "" : ", ", i, i + 1,
                         5 + 2 * (i / kColours.size()), plot_label(arms[i]->shown));
  }
  return plots.empty() ? std::string() : script + "plot " + plots + "\n";
}

// Of the first guest that recorded any: the warm-up trials do, the measured ones are left alone.
Buckets gap_buckets(const Json& document) {
  Buckets buckets;
  const auto warm_up = document.find("warm_up");
  if (warm_up == document.end() || !warm_up->is_array()) return buckets;
  for (const Json& trial : *warm_up) {
    if (!buckets.empty()) break;
    for (const Json& vcpu : trial.at("vcpus")) {
      const Json counts = vcpu.value(Json::json_pointer("/histograms/guest_idle_gap_ns/counts"), Json());
      if (!counts.is_array() || counts.size() > 64) continue;
      for (std::size_t i = 0; i < counts.size(); ++i) {
        if (counts[i].is_number_unsigned() && counts[i] > 0U)
          buckets[std::exp2(static_cast<double>(i)) / 1e3] += counts[i].get<double>();
      }
    }
  }
  return buckets;
}

double total_of(const Buckets& buckets) {
  double total = 0;
  for (const auto& [end, count] : buckets) total += count;
  return total;
}

std::string latency_plot(const Json& document, const Analysis& analysis) {
  std::string script = preamble(kPlotHeight) +
                       "set key outside right top\nset logscale x\nset xlabel 'latency of an operation, us'\n"
                       "set ylabel 'share of the operations'\nset yrange [0:1]\n";
  std::string plots;
  std::size_t curve = 0;
  for (const ArmAnalysis& arm : analysis.arms) {
    const Buckets buckets = latency_buckets(document, arm.name);
    const double total = total_of(buckets);
    if (total <= 0 || curve >= kCurvesMaximum) continue;
    script += fmt::format("$curve{} << END\n", curve);
    double below = 0;
    for (const auto& [end_us, count] : buckets) script += fmt::format("{} {}\n", end_us, (below += count) / total);
    script += "END\n";
    plots += fmt::format("{}$curve{} with lines lt {} dt {} title '{}'", plots.empty() ? "" : ", ", curve, curve + 1,
                         1 + curve / kColours.size(), plot_label(arm.shown));
    ++curve;
  }
  return plots.empty() ? std::string() : script + "plot " + plots + "\n";
}

std::string gap_plot(const Json& document) {
  const Buckets buckets = gap_buckets(document);
  const double total = total_of(buckets);
  if (total <= 0) return {};
  std::string data;
  for (const auto& [end_us, count] : buckets) {
    data += fmt::format("{} {} {}\n", end_us / 2, end_us, count / total);
  }
  return preamble(kPlotHeight) + "$gaps << END\n" + data +
         "END\nset key off\nset logscale x\nset xlabel 'length of an idle period of the guest, us'\n"
         "set ylabel 'share of the periods'\nset yrange [0:*]\nset style fill solid 0.8\n"
         "plot $gaps using ($1*1.414):($3/2):1:2:(0):3 with boxxyerror lt 1\n";
}

void replace_all(std::string& text, std::string_view what, std::string_view with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) {
    text.replace(at, what.size(), with);
  }
}

// gnuplot's SVG as a part of the page: its text and axes in the page's colour, its ids its own.
std::string inline_svg(std::string svg, int index, const std::string& alt) {
  svg.erase(0, svg.find("<svg"));
  for (const char* black : {"rgb(  0,   0,   0)", "rgb(0,0,0)", "\"black\""}) {
    replace_all(svg, black, black[0] == '"' ? "\"currentColor\"" : "currentColor");
  }
  const std::string prefix = fmt::format("plot{}-", index);
  replace_all(svg, " id=\"", " id=\"" + prefix);
  replace_all(svg, " id='", " id='" + prefix);
  replace_all(svg, "xlink:href='#", "xlink:href='#" + prefix);
  replace_all(svg, "url(#", "url(#" + prefix);
  // gnuplot names its own titles; a screen reader is to read ours.
  while (true) {
    const std::size_t begin = svg.find("<title>");
    const std::size_t end = svg.find("</title>");
    if (begin == svg.npos || end == svg.npos || end < begin) break;
    svg.erase(begin, end + sizeof("</title>") - 1 - begin);
  }
  return svg.insert(sizeof("<svg") - 1, fmt::format(" role=\"img\" aria-label=\"{}\"", escape_markup(alt)));
}

struct Plot {
  std::string script;
  std::string title;
  std::string alt;
  std::string caption;
};

std::string figures(const Json& document, const Analysis& analysis) {
  const auto arms = guests_of(analysis);
  if (arms.empty()) return "<p>No guest has a valid trial.</p>\n";
  std::string verdicts;
  for (const ArmAnalysis* arm : arms) {
    if (arm->to_baseline) {
      verdicts +=
          fmt::format(" {}: {} ({}).", arm->shown, number(arm->to_baseline->median), stats::name_of(arm->verdict));
    }
  }
  std::string counts;
  for (const ArmAnalysis* arm : arms) {
    counts += fmt::format(" {}: {} HLT exits, {} IPIs.", arm->shown, number(median_of(*arm, Metric::kHltExits)),
                          number(median_of(*arm, Metric::kIpis)));
  }
  const std::vector<Plot> plots = {
      {ratio_plot(arms), "Time against the baseline", "Ratios of time to the baseline." + verdicts,
       "Each trial is compared with the baseline's trial of the same block."},
      {bars_plot(arms), "What an operation costs in exits and IPIs", "Events an operation." + counts,
       "Medians over the trials."},
      {pareto_plot(arms), "Cost against gain",
       "CPU time an operation against seconds a trial; the table has the numbers.",
       "Down and left is better: less time, and less of the host's CPUs."},
      {latency_plot(document, analysis), "Latency", "Cumulative distribution of the latency of an operation by arm.",
       "All valid trials of an arm together; steps of an eighth of an octave."},
      {gap_plot(document), "Idle periods of the guest that does not poll",
       "Histogram of the lengths of the guest's idle periods, by powers of two.",
       "A policy that waits longer than most of these saves most of the exits."}};
  std::string out;
  int index = 0;
  for (const Plot& plot : plots) {
    if (plot.script.empty()) continue;
    const std::string svg = base::run_filter({"gnuplot", "-"}, plot.script, "gnuplot-nox");
    out += fmt::format("<figure>\n<h2>{}</h2>\n<div class=\"wide\">{}</div><figcaption>{}</figcaption>\n</figure>\n",
                       plot.title, inline_svg(svg, index++, plot.alt), plot.caption);
  }
  return out;
}

// ---- Tables ----

std::string arm_table(const Analysis& analysis) {
  std::string out =
      "<div class=\"wide\"><table>\n<thead><tr><th>arm</th><th>s</th><th>of host</th><th>time "
      "ratio</th><th>95&nbsp;%</th>"
      "<th>verdict</th><th>trials</th>";
  std::vector<const MetricText*> shown;
  for (const MetricText& text : metric_texts()) {
    const bool any = std::ranges::any_of(
        analysis.arms, [&](const ArmAnalysis& arm) { return median_of(arm, text.metric).has_value(); });
    if (text.metric != Metric::kSeconds && any) shown.push_back(&text);
  }
  for (const MetricText* text : shown) {
    std::string name = text->name;
    std::ranges::replace(name, '_', ' ');
    out += fmt::format("<th>{}</th>", name);
  }
  out += "</tr></thead>\n<tbody>\n";
  const auto host = std::ranges::find(analysis.arms, true, &ArmAnalysis::host);
  for (const ArmAnalysis& arm : analysis.arms) {
    const auto seconds = median_of(arm, Metric::kSeconds);
    const auto host_seconds = host == analysis.arms.end() ? std::nullopt : median_of(*host, Metric::kSeconds);
    const auto& ratio = arm.to_baseline;
    out += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}{}</td>", escape_markup(arm.shown),
        number(seconds, 4),
        seconds && host_seconds ? fmt::format("{:.1f}&nbsp;%", 100 * *host_seconds / *seconds) : "–",
        ratio ? fmt::format("{:.3f}", ratio->median) : "–",
        ratio && ratio->interval ? fmt::format("{:.3f} to {:.3f}", ratio->interval->low, ratio->interval->high) : "–",
        ratio                           ? stats::name_of(arm.verdict)
        : arm.name == analysis.baseline ? "baseline"
                                        : "–",
        arm.valid, arm.invalid.empty() ? "" : fmt::format(", {} invalid", arm.invalid.size()));
    for (const MetricText* text : shown) out += fmt::format("<td>{}</td>", number(median_of(arm, text->metric)));
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

// A value of the host's description as a line: "halt_poll_ns=200000, …".
std::string flat(const Json& value) {
  if (value.is_null()) return "not to be had";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object()) return value.dump();
  std::string out;
  for (const auto& [key, part] : value.items()) {
    out += fmt::format("{}{}{}{}", out.empty() ? "" : ", ", key, part.is_object() ? ": " : "=",
                       part.is_object() ? part.dump() : flat(part));
  }
  return out;
}

std::string host_list(const Json& document) {
  const auto host = document.find("host");
  if (host == document.end() || !host->is_object()) return {};
  std::string out = "<dl>\n";
  for (const auto& [key, value] : host->items()) {
    std::string name = key;
    std::ranges::replace(name, '_', ' ');
    out += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escape_markup(name), escape_markup(flat(value).substr(0, 4000)));
  }
  return out + "</dl>\n";
}

}  // namespace

std::string plot_label(std::string_view text) {
  std::string label(text.substr(0, kLabelMaximum));
  std::ranges::replace_if(
      label,
      [](char c) {
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        return !plain && std::string_view(" =.,:()+-_%").find(c) == std::string_view::npos;
      },
      '?');
  return label;
}

std::string html_report(const Json& document) {
  const Analysis analysis = analyse(document);
  std::string warnings;
  for (const std::string& warning : analysis.warnings) {
    warnings += fmt::format("<p class=\"warn\">{}</p>\n", escape_markup(warning));
  }
  const std::string title = fmt::format("{}: guest idle policies compared", analysis.workload);
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width, "
      "initial-scale=1\">\n<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n"
      "{2}<p>{3} blocks, one trial of each arm in each, in random order (seed {4}). Ratios are of times, block by "
      "block, "
      "against <b>{5}</b>; less is faster. Intervals are of the median, 95&nbsp;%. Verdicts: better or worse when the "
      "interval excludes 1; equivalent inside 0.95 to 1.05; else inconclusive. A – is a number that could not be "
      "had.</p>\n"
      "{6}{7}<h2>This host</h2>\n{8}<h2>The same as text</h2>\n<pre>{9}</pre>\n</body>\n</html>\n",
      escape_markup(title), kStyle, warnings, analysis.blocks, analysis.seed, escape_markup(analysis.baseline),
      arm_table(analysis), figures(document, analysis), host_list(document), escape_markup(compare_table(document)));
}

}  // namespace vmm::experiment
