//! Names in columns, as `ls -C` and `ls -x` lay them out (calculate_columns of coreutils' ls.c).

/// The order of names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColumnOrder {
    /// Down, then right (`-C`).
    Vertical,
    /// Right, then down (`-x`).
    Horizontal,
}

/// No column is narrower: a letter and two blanks.
const MIN_COLUMN: usize = 3;
const GAP: usize = 2;

/// The arrangement of names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The width of each column, with the gap except in the last one.
    pub columns: Vec<usize>,
    /// The number of lines.
    pub rows: usize,
    order: ColumnOrder,
    names: usize,
}

impl Layout {
    /// Returns the arrangement with the greatest number of columns that fit into `line` characters (0: no
    /// limit) for names of the given widths.
    pub fn new(widths: &[usize], line: usize, order: ColumnOrder) -> Self {
        let most = if line == 0 { widths.len() } else { line.div_ceil(MIN_COLUMN).min(widths.len()) };
        (2..=most)
            .rev()
            .filter_map(|count| Self::with_columns(widths, count, line, order))
            .next()
            .unwrap_or_else(|| Self { columns: vec![0], rows: widths.len(), order, names: widths.len() })
    }

    fn with_columns(widths: &[usize], count: usize, line: usize, order: ColumnOrder) -> Option<Self> {
        let rows = widths.len().div_ceil(count);
        let mut columns = vec![MIN_COLUMN; count];
        let mut total = MIN_COLUMN * count;
        for (at, &width) in widths.iter().enumerate() {
            let column = match order {
                ColumnOrder::Vertical => at / rows,
                ColumnOrder::Horizontal => at % count,
            };
            let width = width + if column == count - 1 { 0 } else { GAP };
            if width > columns[column] {
                total += width - columns[column];
                columns[column] = width;
            }
            if line != 0 && total >= line {
                return None;
            }
        }
        Some(Self { columns, rows, order, names: widths.len() })
    }

    /// Returns the names of line `row`, from left to right.
    pub fn row(&self, row: usize) -> impl Iterator<Item = usize> + '_ {
        let count = self.columns.len();
        (0..count)
            .map(move |column| match self.order {
                ColumnOrder::Vertical => column * self.rows + row,
                ColumnOrder::Horizontal => row * count + column,
            })
            .filter(|&at| at < self.names)
    }
}

/// Moves from column `from` to column `to` with tabs where they reach, as `ls` does; blanks only if `tab` is 0.
pub fn indent(out: &mut Vec<u8>, mut from: usize, to: usize, tab: usize) {
    while from < to {
        if tab != 0 && to / tab > (from + 1) / tab {
            out.push(b'\t');
            from += tab - from % tab;
        } else {
            out.push(b' ');
            from += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fill_the_line_downwards_or_across() {
        let widths = [1, 2, 3, 4, 5];
        let down = Layout::new(&widths, 16, ColumnOrder::Vertical);
        assert_eq!((down.columns.len(), down.rows), (3, 2));
        assert_eq!(down.row(0).collect::<Vec<_>>(), [0, 2, 4]);
        assert_eq!(down.row(1).collect::<Vec<_>>(), [1, 3]);
        let across = Layout::new(&widths, 16, ColumnOrder::Horizontal);
        assert_eq!(across.row(0).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn a_name_wider_than_the_line_has_its_own_line() {
        assert_eq!(Layout::new(&[100, 1], 80, ColumnOrder::Vertical).columns.len(), 1);
        assert_eq!(Layout::new(&[], 80, ColumnOrder::Vertical).rows, 0);
    }

    #[test]
    fn gaps_are_tabs_where_a_tab_stop_lies_between() {
        let mut out = Vec::new();
        indent(&mut out, 3, 17, 8);
        assert_eq!(out, b"\t\t ");
        out.clear();
        indent(&mut out, 3, 6, 0);
        assert_eq!(out, b"   ");
    }
}
