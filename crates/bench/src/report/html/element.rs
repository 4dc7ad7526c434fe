//! Escaping of text in the page.

use std::fmt::Write as _;

/// A page under construction.
#[derive(Default)]
pub struct Html {
    text: String,
}

impl Html {
    /// Appends markup.
    pub fn raw(&mut self, markup: &str) -> &mut Self {
        self.text.push_str(markup);
        self
    }

    /// Appends an element with escaped text.
    pub fn element(&mut self, name: &str, attributes: &str, text: &str) -> &mut Self {
        let gap = if attributes.is_empty() { "" } else { " " };
        let _ = write!(self.text, "<{name}{gap}{attributes}>{}</{name}>", escaped(text));
        self
    }

    /// Returns the page.
    pub fn finish(self) -> String {
        self.text
    }
}

/// `tag!(page, "td", "class=\"x\"", text)` appends an element with escaped text.
macro_rules! tag {
    ($page:expr, $name:literal, $attributes:expr, $text:expr) => {
        $page.element($name, $attributes, $text)
    };
}
pub(super) use tag;

/// Escapes text for elements and attributes.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ => out.push(letter),
        }
    }
    out
}
