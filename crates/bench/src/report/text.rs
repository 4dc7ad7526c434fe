//! A table for a terminal.

use std::fmt::Write as _;

use super::{Figure, Table, short};

/// Returns a table with a line per row and a column per target: the median, the error, and the speed relative to the
/// baseline.
pub fn text(table: &Table) -> String {
    let mut lines = vec![header(table)];
    for row in &table.rows {
        let mut cells = vec![row.name(), row.measure.unit().to_owned()];
        cells.extend(row.figures.iter().enumerate().map(|(at, figure)| cell(figure, at == table.baseline)));
        lines.push(cells);
    }
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for line in &lines {
        for (at, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let gap = if at == 0 { "" } else { "  " };
            let _ =
                if at < 2 { write!(out, "{gap}{cell:<width$}") } else { write!(out, "{gap}{cell:>width$}") };
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out.push_str(&standings(table));
    out
}

fn header(table: &Table) -> Vec<String> {
    ["workload", "unit"].iter().map(|name| (*name).to_owned()).chain(table.targets.iter().cloned()).collect()
}

fn cell(figure: &Figure, is_baseline: bool) -> String {
    let Some(summary) = &figure.summary else {
        return figure.why_not.as_deref().map_or_else(|| "-".to_owned(), brief);
    };
    let mut text = short(summary.median);
    if summary.samples > 1 {
        let _ = write!(text, " ±{:.0}%", summary.relative_error() * 100.0);
    }
    if let Some(speed) = figure.speed.filter(|_| !is_baseline) {
        let _ = write!(text, " {}x", short(speed.value));
    }
    if figure.disturbed > 0 {
        text.push('!');
    }
    text
}

/// Returns the first line of a reason, cut to the width of a column.
fn brief(why: &str) -> String {
    const ROOM: usize = 24;
    let why = why.lines().next().unwrap_or_default();
    if why.chars().count() <= ROOM {
        why.to_owned()
    } else {
        why.chars().take(ROOM - 1).chain(['…']).collect()
    }
}

fn standings(table: &Table) -> String {
    let mut out = String::new();
    for standing in table.standings() {
        let Some(speed) = standing.speed.filter(|_| standing.target != table.baseline()) else { continue };
        let (faster, slower, rows) = (standing.faster, standing.slower, standing.rows);
        if out.is_empty() {
            let _ = writeln!(out, "\nSpeed relative to {} (geometric mean of all rows):", table.baseline());
        }
        let _ = writeln!(
            out,
            "  {}: {} (faster in {faster}, slower in {slower} of {rows} rows)",
            standing.target,
            short(speed)
        );
    }
    if table.rows.iter().any(|row| row.figures.iter().any(|figure| figure.disturbed > 0)) {
        out.push_str("! Unreliable: the machine was busy during at least one sample.\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    #[test]
    fn a_row_shows_the_value_its_error_and_the_ratio() {
        let text = text(&Table::of(&sample(), None));
        let mut lines = text.lines();
        assert_eq!(
            lines.next().unwrap(),
            "workload  unit   kernel:ext4      image:ext4                 fuse2fs"
        );
        assert_eq!(
            lines.next().unwrap(),
            "load      ops/s     150 ±19%  300 ±19% 2.00x  not finished in 10 min"
        );
        assert!(text.contains("image:ext4: 2.00 (faster in 1, slower in 0 of 1 rows)"), "{text}");
    }
}
