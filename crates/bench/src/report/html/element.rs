//! Text that becomes part of a page without becoming markup.

use std::fmt::Write as _;

/// A page that grows.
#[derive(Default)]
pub struct Html {
    text: String,
}

impl Html {
    /// Adds markup of our own.
    pub fn raw(&mut self, markup: &str) -> &mut Self {
        self.text.push_str(markup);
        self
    }

    /// Adds an element; what is in it is text.
    pub fn element(&mut self, name: &str, attributes: &str, text: &str) -> &mut Self {
        let gap = if attributes.is_empty() { "" } else { " " };
        let _ = write!(self.text, "<{name}{gap}{attributes}>{}</{name}>", escaped(text));
        self
    }

    /// The whole.
    pub fn finish(self) -> String {
        self.text
    }
}

/// `tag!(page, "td", "class=\"x\"", text)`: an element with text in it.
macro_rules! tag {
    ($page:expr, $name:literal, $attributes:expr, $text:expr) => {
        $page.element($name, $attributes, $text)
    };
}
pub(super) use tag;

/// Text as it stands in a page, in attributes too.
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
