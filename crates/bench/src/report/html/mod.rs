//! A self-contained HTML page. It needs no network and no scripts, and can be printed. It follows the reader's choice
//! of light or dark, and supports keyboards and screen readers. A table below each chart contains its figures.

mod chart;
mod element;

use chart::{bars, curves, surface};
use element::{Html, tag};

use super::{Table, short};
use crate::results::Results;
use crate::workload::Measure;

const STYLE: &str = include_str!("style.css");

/// Returns the page of one or more runs, with a section for each run.
pub fn html(all: &[(Results, Table)]) -> String {
    let names: Vec<&str> = all.iter().map(|(results, _)| results.suite.as_str()).collect();
    let title = format!("obento bench: {}", names.join(", "));
    let mut page = Html::default();
    page.raw("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    page.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    page.raw("<meta name=\"color-scheme\" content=\"light dark\">");
    tag!(page, "title", "", &title);
    page.raw("<style>").raw(STYLE).raw("</style></head><body><main>");
    tag!(page, "h1", "", &title);
    for (results, table) in all {
        run(&mut page, results, table);
    }
    page.raw("</main></body></html>\n");
    page.finish()
}

fn run(page: &mut Html, results: &Results, table: &Table) {
    page.raw("<section>");
    tag!(page, "h2", "", &format!("{}, begun {}", results.suite, results.started));
    summary(page, table);
    chapters(page, results, table);
    system(page, results);
    page.raw("</section>");
}

fn summary(page: &mut Html, table: &Table) {
    tag!(page, "h3", "", "Summary");
    tag!(
        page,
        "p",
        "",
        &format!(
            "The speed of each target relative to {}, as the geometric mean of all rows, and the number of rows in which it is faster or slower \
             beyond noise (95 % intervals of paired runs).",
            table.baseline()
        )
    );
    page.raw(
        "<div class=\"wide\"><table class=\"standings\"><thead><tr><th scope=\"col\">target</th><th scope=\"col\">speed</th>",
    );
    page.raw("<th scope=\"col\">faster</th><th scope=\"col\">slower</th><th scope=\"col\">rows</th></tr></thead><tbody>");
    for standing in table.standings() {
        page.raw("<tr>");
        tag!(page, "th", "scope=\"row\"", &standing.target);
        tag!(
            page,
            "td",
            "",
            &standing.speed.map_or_else(|| "-".to_owned(), |speed| format!("{}x", short(speed)))
        );
        for count in [standing.faster, standing.slower, standing.rows] {
            tag!(page, "td", "", &count.to_string());
        }
        page.raw("</tr>");
    }
    page.raw("</tbody></table></div>");
}

/// Appends a chart and a table of figures for each workload.
fn chapters(page: &mut Html, results: &Results, table: &Table) {
    let mut workloads: Vec<&str> = table.rows.iter().map(|row| row.workload.as_str()).collect();
    workloads.dedup();
    for workload in workloads {
        let rows: Vec<_> = table.rows.iter().filter(|row| row.workload == workload).collect();
        page.raw("<article>");
        tag!(page, "h3", "", workload);
        if rows.iter().all(|row| row.phase.contains('/')) {
            for (at, _) in table.targets.iter().enumerate() {
                surface(page, table, &rows, at);
            }
        } else {
            for row in &rows {
                bars(page, table, row);
            }
        }
        if rows.iter().any(|row| row.measure == Measure::Latency) {
            curves(page, results, table, workload);
        }
        numbers(page, table, &rows);
        page.raw("</article>");
    }
}

fn numbers(page: &mut Html, table: &Table, rows: &[&super::Row]) {
    page.raw("<details open><summary>Numbers</summary><div class=\"wide\"><table><thead><tr><th scope=\"col\">phase</th>");
    page.raw("<th scope=\"col\">target</th><th scope=\"col\">median</th><th scope=\"col\">error</th>");
    page.raw("<th scope=\"col\">least</th><th scope=\"col\">most</th><th scope=\"col\">runs</th><th scope=\"col\">speed</th>");
    page.raw("<th scope=\"col\">interval</th><th scope=\"col\">published</th></tr></thead><tbody>");
    for row in rows {
        for (at, (figure, target)) in row.figures.iter().zip(&table.targets).enumerate() {
            page.raw("<tr>");
            let phase = if row.phase.is_empty() {
                row.measure.unit().to_owned()
            } else {
                format!("{} ({})", row.phase, row.measure.unit())
            };
            tag!(page, "td", "", &phase);
            tag!(page, "th", "scope=\"row\"", target);
            let Some(summary) = &figure.summary else {
                tag!(
                    page,
                    "td",
                    "colspan=\"8\" class=\"none\"",
                    figure.why_not.as_deref().unwrap_or("not run")
                );
                page.raw("</tr>");
                continue;
            };
            let mark = if figure.disturbed > 0 { " (unreliable)" } else { "" };
            let key = format!(
                "data-key=\"{}\"",
                element::escaped(&format!("{}|{}|{target}", row.workload, row.phase))
            );
            tag!(page, "td", &key, &short(summary.median));
            tag!(page, "td", "", &format!("±{:.1} %{mark}", summary.relative_error().min(9.99) * 100.0));
            for value in [summary.least, summary.most] {
                tag!(page, "td", "", &short(value));
            }
            tag!(page, "td", "", &summary.samples.to_string());
            let speed = figure.speed.filter(|_| at != table.baseline);
            tag!(page, "td", "", &speed.map_or_else(String::new, |speed| format!("{}x", short(speed.value))));
            tag!(
                page,
                "td",
                "",
                &speed.map_or_else(String::new, |speed| format!(
                    "{} to {}",
                    short(speed.low),
                    short(speed.high)
                ))
            );
            tag!(page, "td", "", &published(row, target));
            page.raw("</tr>");
        }
    }
    page.raw("</tbody></table></div></details>");
}

/// Returns the figure that the reproduction of Bento published for a similar target.
fn published(row: &super::Row, target: &str) -> String {
    let Some(published) = row.published() else { return String::new() };
    let [fs, paper] = published.ratios;
    let [user, paper_user] = published.user_ratios;
    match target {
        "kernel:ext4" => short(published.ordered),
        "kernel:ext4,data=journal" => short(published.journal),
        _ if target.starts_with("image:") => format!("Bento-fs {fs:.2}x / {paper:.2}x"),
        _ if target.starts_with("fuse:") => format!("Bento-user {user:.2}x / {paper_user:.2}x"),
        _ => String::new(),
    }
}

fn system(page: &mut Html, results: &Results) {
    let machine = &results.machine;
    tag!(page, "h3", "", "The system");
    page.raw("<table class=\"system\"><tbody>");
    let settings = &results.settings;
    let facts = [
        ("processor", format!("{} x {}", machine.processors, machine.processor)),
        ("memory", obento::text::human_size(machine.memory)),
        ("kernel", machine.kernel.clone()),
        ("images are on", machine.setup.clone()),
        ("size of each", obento::text::human_size(results.size)),
        ("large file", format!("{}{}", obento::text::human_size(settings.file_size), fits(results))),
        ("threads", settings.threads.to_string()),
        ("run time", format!("{} s", settings.run_time.as_secs_f64())),
        ("scale", format!("1/{}", settings.scale)),
        (
            "repetitions",
            format!(
                "{} to {}, until the error is under {} %",
                results.enough.least,
                results.enough.most,
                results.enough.error * 100.0
            ),
        ),
    ];
    let versions = machine.versions.iter().map(|(name, version)| (name.as_str(), version.clone()));
    for (name, value) in facts.into_iter().chain(versions) {
        page.raw("<tr>");
        tag!(page, "th", "scope=\"row\"", name);
        tag!(page, "td", "", &value);
        page.raw("</tr>");
    }
    page.raw("</tbody></table>");
}

/// Returns a warning if the large files fit the memory, because the figures then describe the page cache.
fn fits(results: &Results) -> &'static str {
    match results.settings.file_size < results.machine.memory {
        true => ", which fits in memory: reads after writes come from the cache",
        false => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    #[test]
    fn the_page_contains_the_results_and_is_self_contained() {
        let results = sample();
        let table = Table::of(&results, None);
        let page = html(&[(results, table)]);
        assert!(page.contains("data-key=\"load||image:ext4\">300</td>"), "{page}");
        assert!(page.contains("not finished in 10 min"));
        for outside in ["http://", "https://", "<script", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn values_of_results_are_text_on_the_page() {
        let mut results = sample();
        results.suite = "<img src=x onerror=alert(1)>".to_owned();
        for cell in &mut results.cells {
            cell.target = format!("\"><b>{}", cell.target);
        }
        let table = Table::of(&results, None);
        let page = html(&[(results, table)]);
        assert!(!page.contains("<img") && !page.contains("<b>"), "{page}");
    }
}
