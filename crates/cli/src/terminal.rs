//! The size of standard output's terminal.

/// Returns the number of columns: the value of `COLUMNS`, that of the terminal, or 80.
pub fn width() -> usize {
    size().0
}

/// Returns the numbers of columns and rows: the values of `COLUMNS` and `LINES`, those of the terminal, or 80 and 24.
pub fn size() -> (usize, usize) {
    let terminal = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok();
    let number = |variable: &str, found: Option<u16>, default| {
        let from_env = std::env::var_os(variable).and_then(|text| text.to_str()?.parse().ok());
        from_env.or(found.map(usize::from)).filter(|&count| count > 0).unwrap_or(default)
    };
    let columns = number("COLUMNS", terminal.map(|size| size.ws_col), 80);
    (columns, number("LINES", terminal.map(|size| size.ws_row), 24))
}
