//! Writes the elements of an SVG as text.

use std::fmt::Write;

/// Escapes a name as text of an element or of an attribute. XML does not allow control characters.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            c if c.is_control() => out.push(char::REPLACEMENT_CHARACTER),
            c => out.push(c),
        }
    }
    out
}

/// Position and size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

/// The body of an SVG. Writing into a String cannot fail.
#[derive(Debug, Default)]
pub(super) struct Body(String);

impl Body {
    pub(super) fn rectangle(&mut self, class: &str, area: Area, title: &str) {
        let Area { x, y, width, height } = area;
        let _ = write!(
            self.0,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"2\""
        );
        self.titled("rect", title);
    }

    pub(super) fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let _ = writeln!(
            self.0,
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        );
    }

    pub(super) fn path(&mut self, class: &str, path: &str, title: &str) {
        let _ = write!(self.0, "<path class=\"{class}\" d=\"{path}\"");
        self.titled("path", title);
    }

    pub(super) fn text(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        let text = escaped(text);
        let _ = writeln!(
            self.0,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"
        );
    }

    fn titled(&mut self, element: &str, title: &str) {
        let _ = if title.is_empty() {
            writeln!(self.0, "/>")
        } else {
            writeln!(self.0, "><title>{}</title></{element}>", escaped(title))
        };
    }

    /// Returns the whole document.
    pub(super) fn finish(self, (width, height): (f64, f64), title: &str, style: &str) -> String {
        let title = escaped(title);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\" aria-label=\"{title}\">\n<title>{title}</title>\n<style>{style}</style>\n\
             <rect class=\"page\" width=\"{width:.0}\" height=\"{height:.0}\"/>\n{}</svg>\n",
            self.0
        )
    }
}
