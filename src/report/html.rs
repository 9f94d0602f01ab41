//! One self-contained page: style and script inside, no font, image or library from elsewhere, so that it still opens in
//! ten years and on a machine without a network. Every text goes through the template's escaping.

use crate::error::{Error, Result};
use minijinja::{Environment, context};
use serde::Serialize;

/// A number at the top of the page.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Card {
    pub what: String,
    pub number: String,
    pub unit: String,
    pub note: String,
}

/// A column's head; numbers are aligned right.
#[derive(Clone, Debug, Serialize)]
pub struct Head {
    pub text: String,
    pub number: bool,
}

/// Floor, measurement and prediction as parts of one bar, percent of its width.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Meter {
    pub floor: f64,
    pub ns: f64,
    pub predicted: f64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    pub cells: Vec<String>,
    pub total: bool,
    pub meter: Option<Meter>,
}

/// A table; with `folded` it stays shut behind that text.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Table {
    pub title: String,
    pub folded: Option<String>,
    pub head: Vec<Head>,
    pub rows: Vec<Row>,
}

impl Table {
    /// Heads that begin with `>` are of numbers.
    pub fn new(title: impl Into<String>, head: &[&str]) -> Self {
        let head = head.iter().map(|h| Head { text: h.trim_start_matches('>').into(), number: h.starts_with('>') });
        Self { title: title.into(), folded: None, head: head.collect(), rows: Vec::new() }
    }
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) -> &mut Row {
        self.rows.push(Row { cells: cells.into_iter().collect(), ..Row::default() });
        let last = self.rows.len() - 1;
        &mut self.rows[last]
    }
}

/// A bar of a waterfall, in units of the picture.
#[derive(Clone, Debug, Serialize)]
pub struct Bar {
    pub name: String,
    pub short: String,
    pub value: String,
    pub share: String,
    pub fill: &'static str,
    pub x: f64,
    pub width: f64,
    /// Where the next bar begins.
    pub end: f64,
    pub y: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Waterfall {
    pub title: String,
    pub height: f64,
    pub bars: Vec<Bar>,
}

/// A picture that the page's script draws; `data` comes from `timeline::data`.
#[derive(Clone, Debug, Serialize)]
pub struct Picture {
    pub id: String,
    pub title: String,
    pub data: String,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Section {
    pub id: String,
    pub title: String,
    pub notes: Vec<String>,
    pub waterfall: Option<Waterfall>,
    pub timelines: Vec<Picture>,
    pub tables: Vec<Table>,
    pub evidence: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Page {
    pub title: String,
    /// `measured`, `recorded` or `assumed`.
    pub provenance: String,
    pub subtitle: String,
    pub cards: Vec<Card>,
    /// Tables above the environment.
    pub tables: Vec<Table>,
    pub facts: Vec<(String, String)>,
    pub sections: Vec<Section>,
}

impl Page {
    pub fn render(&self) -> Result<String> {
        let bad = |e: minijinja::Error| Error::usage(format!("cannot write the page: {e:#}"));
        let mut templates = Environment::new();
        templates.add_template("page.html", include_str!("templates/page.html")).map_err(bad)?;
        let page = minijinja::Value::from(minijinja::value::Serde(self));
        let style = include_str!("templates/style.css");
        let script = include_str!("templates/timeline.js");
        let template = templates.get_template("page.html").map_err(bad)?;
        template.render(context! { style, script, ..page }).map_err(bad)
    }
}
