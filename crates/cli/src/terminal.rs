//! The size of standard output's terminal.

/// Returns the number of columns: the value of `COLUMNS`, that of the terminal, or 80.
pub fn width() -> usize {
    let from_env = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let asked = || {
        let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok()?;
        Some(usize::from(size.ws_col)).filter(|&columns| columns > 0)
    };
    from_env.or_else(asked).unwrap_or(80)
}
