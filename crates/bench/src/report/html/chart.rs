//! SVG charts in the page.

use super::element::{Html, escaped, tag};
use crate::report::{Row, Table, short};
use crate::results::Results;

const WIDTH: f64 = 640.0;
const BAR: f64 = 22.0;
const GAP: f64 = 8.0;
/// The width of the names on the left.
const NAMES: f64 = 200.0;
/// The height of the name above a bar, and the distance between bars.
const NAME: f64 = 18.0;
const STEP: f64 = NAME + BAR + GAP;
/// The width of the longest bar including its error, in percent. The figure is to the right.
const LONGEST: f64 = 74.0;
const ERROR: f64 = 5.0;

fn open(page: &mut Html, height: f64, label: &str) {
    page.raw(&format!(
        "<figure><svg role=\"img\" viewBox=\"0 0 {WIDTH} {height}\" aria-label=\"{}\">",
        escaped(label)
    ));
}

fn close(page: &mut Html, caption: &str) {
    page.raw("</svg>");
    tag!(page, "figcaption", "", caption);
    page.raw("</figure>");
}

fn label(page: &mut Html, x: f64, y: f64, anchor: &str, text: &str) {
    page.element("text", &format!("x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\""), text);
}

/// Draws the medians of a row as bars, with error bars.
pub fn bars(page: &mut Html, table: &Table, row: &Row) {
    let most = row
        .figures
        .iter()
        .filter_map(|figure| figure.summary)
        .map(|summary| summary.median)
        .fold(0.0, f64::max);
    if most <= 0.0 {
        return;
    }
    let direction = if row.measure.more_is_better() { "more is better" } else { "less is better" };
    let caption = format!("{}: {}, {direction}", row.name(), row.measure.unit());
    // Horizontal positions are in percent of the width, so that a narrow page also shows complete bars and readable
    // names.
    let height = table.targets.len() as f64 * STEP + GAP;
    page.raw(&format!(
        "<figure><svg role=\"img\" class=\"bars\" height=\"{height}\" aria-label=\"{}\">",
        escaped(&caption)
    ));
    let scale = LONGEST / most;
    for (at, (target, figure)) in table.targets.iter().zip(&row.figures).enumerate() {
        let y = GAP + at as f64 * STEP;
        label(page, 0.0, y + NAME * 0.7, "start", target);
        let (y, text) = (y + NAME, y + NAME + BAR * 0.7);
        let Some(summary) = figure.summary else {
            label(page, 0.0, text, "start", figure.why_not.as_deref().unwrap_or("not run"));
            continue;
        };
        let (width, error) = (summary.median * scale, (summary.standard_error() * scale).min(ERROR));
        page.raw(&format!(
            "<rect class=\"c{}\" x=\"0\" y=\"{y:.1}\" width=\"{width:.2}%\" height=\"{BAR}\" rx=\"2\"/>",
            at % 6
        ));
        // An error bar is cut at the axis and at the figures.
        let (low, high, middle) = ((width - error).max(0.0), width + error, y + BAR / 2.0);
        for (x1, x2, y1, y2) in [
            (low, high, middle, middle),
            (low, low, middle - 4.0, middle + 4.0),
            (high, high, middle - 4.0, middle + 4.0),
        ] {
            page.raw(&format!(
                "<line class=\"error\" x1=\"{x1:.2}%\" x2=\"{x2:.2}%\" y1=\"{y1:.1}\" y2=\"{y2:.1}\"/>"
            ));
        }
        page.element("text", &format!("x=\"{high:.2}%\" dx=\"6\" y=\"{text:.1}\""), &short(summary.median));
    }
    close(page, &caption);
}

/// Draws the percentiles of a latency, one curve per target, with a logarithmic time axis.
pub fn curves(page: &mut Html, results: &Results, table: &Table, workload: &str) {
    const HEIGHT: f64 = 280.0;
    const BOTTOM: f64 = 40.0;
    let lines: Vec<(usize, Vec<(f64, f64)>)> = table
        .targets
        .iter()
        .enumerate()
        .filter_map(|(at, target)| {
            let cell =
                results.cells.iter().find(|cell| cell.workload == workload && cell.target == *target)?;
            Some((at, percentiles(cell)))
        })
        .filter(|(_, points)| !points.is_empty())
        .collect();
    let times =
        || lines.iter().flat_map(|(_, points)| points).map(|(_, time)| *time).filter(|time| *time > 0.0);
    let (least, most) = (times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max));
    if lines.is_empty() || most <= least {
        return;
    }
    let (low, high) = (least.log10().floor(), most.log10().ceil());
    // The horizontal axis counts nines: 90 % is at 1, 99 % at 2, 99.9 % at 3 and 99.99 % at 4.
    let x = |percent: f64| {
        NAMES / 2.0 + (WIDTH - NAMES) * (-(1.0 - percent / 100.0).max(1e-5).log10() / 4.0).min(1.0)
    };
    let y = |time: f64| (HEIGHT - BOTTOM) * (1.0 - (time.log10() - low) / (high - low)) + GAP;
    let caption = format!("{workload}: latency percentiles in microseconds (less is better)");
    open(page, HEIGHT + GAP, &caption);
    let mut power = low;
    while power <= high {
        let at = y(10_f64.powf(power));
        page.raw(&format!("<path class=\"grid\" d=\"M{:.1} {at:.1}H{:.1}\"/>", x(0.0), x(99.99)));
        label(page, x(0.0) - 6.0, at + 4.0, "end", &short(10_f64.powf(power)));
        power += 1.0;
    }
    for percent in [50.0, 90.0, 99.0, 99.9, 99.99] {
        label(page, x(percent), HEIGHT - BOTTOM + GAP + 20.0, "middle", &format!("{percent} %"));
    }
    for (place, (at, points)) in lines.iter().enumerate() {
        let path: Vec<String> =
            points.iter().map(|(percent, time)| format!("{:.1} {:.1}", x(*percent), y(*time))).collect();
        page.raw(&format!("<path class=\"line l{}\" d=\"M{}\"/>", at % 6, path.join("L")));
        let name = table.targets.get(*at).map_or("", String::as_str);
        page.raw(&format!("<g class=\"key k{}\">", at % 6));
        label(page, x(99.99) + 6.0, 20.0 + place as f64 * 18.0, "start", name);
        page.raw("</g>");
    }
    close(page, &caption);
}

/// Returns the median over the samples for each percentile.
fn percentiles(cell: &crate::results::CellResult) -> Vec<(f64, f64)> {
    let phases = || cell.samples.iter().flat_map(|sample| &sample.phases);
    let Some(first) = phases().next() else { return Vec::new() };
    let mut points: Vec<(f64, f64)> = first
        .percentiles
        .keys()
        .filter_map(|key| {
            let times: Vec<f64> = phases().filter_map(|phase| phase.percentiles.get(key).copied()).collect();
            Some((key.parse().ok()?, crate::statistics::Summary::of(&times)?.median))
        })
        .collect();
    points.sort_by(|left, right| left.0.total_cmp(&right.0));
    points
}

/// Draws the IOzone surface of a target: one chart per test, with file sizes down, record sizes across, and the
/// throughput as a shade.
pub fn surface(page: &mut Html, table: &Table, rows: &[&Row], at: usize) {
    let mut tests: Vec<&str> =
        rows.iter().filter_map(|row| row.phase.rsplit_once(' ')).map(|(test, _)| test).collect();
    tests.sort_unstable();
    tests.dedup();
    let target = table.targets.get(at).map_or("", String::as_str);
    for test in tests {
        let cells: Vec<(u64, u64, f64)> = rows
            .iter()
            .filter_map(|row| {
                let (file, record) = row.phase.strip_prefix(test)?.strip_prefix(' ')?.split_once('/')?;
                let kib = |text: &str| text.strip_suffix('k')?.parse::<u64>().ok();
                Some((kib(file)?, kib(record)?, row.figures.get(at)?.summary?.median))
            })
            .collect();
        if !cells.is_empty() {
            one_surface(
                page,
                &format!("{test} on {target}: MB/s by size of file (down) and record (across), in KiB"),
                &cells,
            );
        }
    }
}

fn one_surface(page: &mut Html, caption: &str, cells: &[(u64, u64, f64)]) {
    let values = |of: fn(&(u64, u64, f64)) -> u64| {
        let mut all: Vec<u64> = cells.iter().map(of).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let (files, records) = (values(|cell| cell.0), values(|cell| cell.1));
    let most = cells.iter().map(|cell| cell.2).fold(f64::MIN_POSITIVE, f64::max);
    let (width, height) = ((WIDTH - NAMES / 2.0) / records.len() as f64, BAR + 6.0);
    open(page, (files.len() + 1) as f64 * height, caption);
    for (file, record, value) in cells {
        let place = |all: &[u64], one: &u64| all.iter().position(|known| known == one).unwrap_or(0) as f64;
        let (x, y) = (NAMES / 2.0 + place(&records, record) * width, place(&files, file) * height);
        page.raw(&format!(
            "<rect class=\"shade\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill-opacity=\"{:.3}\"/>",
            width - 2.0,
            height - 2.0,
            value / most
        ));
        label(page, x + width / 2.0, y + height * 0.6, "middle", &short(*value));
    }
    for (at, file) in files.iter().enumerate() {
        label(page, NAMES / 2.0 - 8.0, (at as f64 + 0.6) * height, "end", &file.to_string());
    }
    for (at, record) in records.iter().enumerate() {
        label(
            page,
            NAMES / 2.0 + (at as f64 + 0.5) * width,
            (files.len() as f64 + 0.6) * height,
            "middle",
            &record.to_string(),
        );
    }
    close(page, caption);
}
