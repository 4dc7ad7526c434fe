//! A Markdown table for documentation.

use std::fmt::Write as _;

use super::{Table, short};
use crate::results::Results;

/// Returns the parameters, a table of medians with ratios to the baseline, and the published ratios, if there are any.
pub fn markdown(results: &Results, table: &Table) -> String {
    let machine = &results.machine;
    let mut out = format!(
        "`obento bench {}`, begun {}: {} ({} processors, {}), {}, images of {} on {}.\n\n",
        results.suite,
        results.started,
        machine.processor,
        machine.processors,
        obento::text::human_size(machine.memory),
        machine.kernel,
        obento::text::human_size(results.size),
        machine.setup,
    );
    let _ = writeln!(
        out,
        "Medians of {} to {} runs; in parentheses the speed relative to `{}`, bold if the difference is significant.\n",
        results.enough.least,
        results.enough.most,
        table.baseline()
    );
    let names: Vec<String> = table.targets.iter().map(|target| field(target)).collect();
    let _ = writeln!(out, "| workload | unit | {} |", names.join(" | "));
    let _ = writeln!(out, "|---|---|{}", "---:|".repeat(table.targets.len()));
    for row in &table.rows {
        let _ = write!(out, "| {} | {} |", row.name(), row.measure.unit());
        for (at, figure) in row.figures.iter().enumerate() {
            let text = match (&figure.summary, figure.speed.filter(|_| at != table.baseline)) {
                (None, _) => field(figure.why_not.as_deref().unwrap_or("-")),
                (Some(summary), None) => short(summary.median),
                (Some(summary), Some(speed)) if speed.differs() => {
                    format!("{} (**{}**)", short(summary.median), short(speed.value))
                }
                (Some(summary), Some(speed)) => format!("{} ({})", short(summary.median), short(speed.value)),
            };
            let _ = write!(out, " {text} |");
        }
        out.push('\n');
    }
    out.push_str(&published(table));
    out
}

/// Returns text as a field of a table, which has one line and no `|`.
fn field(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn published(table: &Table) -> String {
    let rows: Vec<_> = table.rows.iter().filter_map(|row| Some((row, row.published()?))).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut out = format!(
        "\nThroughput compared with ext4 `data=journal`, beside the published values of Bento (reproduced / in its paper). They \
         count whole seconds, so that 1.00 often means the same second. Here, the baseline is `{}`.\n\n",
        table.baseline()
    );
    let others: Vec<usize> = (0..table.targets.len()).filter(|at| *at != table.baseline).collect();
    let names: Vec<String> =
        others.iter().filter_map(|at| table.targets.get(*at)).map(|target| field(target)).collect();
    let _ = writeln!(out, "| workload | {} | Bento-fs | Bento-user |", names.join(" | "));
    let _ = writeln!(out, "|---|{}---:|---:|", "---:|".repeat(names.len()));
    for (row, published) in rows {
        let _ = write!(out, "| {} |", row.name());
        for at in &others {
            let speed = row.figures.get(*at).and_then(|figure| figure.speed);
            let _ = write!(out, " {} |", speed.map_or_else(|| "-".to_owned(), |speed| short(speed.value)));
        }
        let [fs, paper] = published.ratios;
        let [user, paper_user] = published.user_ratios;
        let _ = writeln!(out, " {fs:.2} / {paper:.2} | {user:.2} / {paper_user:.2} |");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    #[test]
    fn a_ratio_beyond_noise_is_bold() {
        let results = sample();
        let text = markdown(&results, &Table::of(&results, None));
        assert!(text.contains("| load | ops/s | 150 | 300 (**2.00**) | not finished in 10 min |"), "{text}");
        assert!(!text.contains("Bento-user"));
    }

    #[test]
    fn published_ratios_are_shown_beside_those_of_the_same_workload() {
        let mut results = sample();
        for cell in &mut results.cells {
            cell.workload = "rand_write_4k,T=1".to_owned();
        }
        let text = markdown(&results, &Table::of(&results, None));
        assert!(text.contains("| rand_write_4k,T=1 | 2.00 | - | 2.81 / 1.16 | 0.03 / 0.07 |"), "{text}");
    }
}
