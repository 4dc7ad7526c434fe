//! Questions to the user at the terminal, such as those of `-i`.

use std::io::{self, BufRead, Write};

/// Asks `question` on standard error. Returns whether the answer starts with `y` or `Y`.
pub fn agrees(question: &str) -> bool {
    let mut answer = Vec::new();
    // Without a user who can answer, the answer is no.
    let asked = write!(io::stderr(), "obento: {question} ").and_then(|()| io::stderr().flush());
    let answered = asked.and_then(|()| io::stdin().lock().read_until(b'\n', &mut answer));
    answered.is_ok() && matches!(answer.first(), Some(b'y' | b'Y'))
}
