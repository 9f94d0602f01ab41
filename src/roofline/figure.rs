//! What every picture shares: font, colours, grid, legend, and the two file formats.

use crate::error::{Error, Result};
use plotters::coord::{CoordTranslate, Shift};
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};
use std::path::Path;
use std::sync::Once;

/// The family of every label.
pub const FONT: &str = "sans-serif";
/// Lines of the grid at labelled values and between them.
pub const BOLD: RGBColor = RGBColor(215, 215, 215);
pub const LIGHT: RGBColor = RGBColor(242, 242, 242);

/// Told apart by people with any colour vision: Okabe and Ito's, then the darker ones of Tol's muted scheme.
const COLOURS: [RGBColor; 14] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
    RGBColor(136, 34, 85),
    RGBColor(51, 34, 136),
    RGBColor(153, 153, 51),
    RGBColor(17, 119, 51),
    RGBColor(170, 68, 153),
    RGBColor(102, 60, 20),
    RGBColor(204, 102, 119),
];

/// The colour of series `i`: no two series share one.
pub fn colour(i: usize) -> RGBColor {
    if let Some(colour) = COLOURS.get(i) {
        return *colour;
    }
    // Hues a golden angle apart never meet; the lightness steps down so that near ones differ in it.
    let n = (i - COLOURS.len()) as f64;
    let (r, g, b) = HSLColor((n * 0.381_966) % 1.0, 0.55, 0.30 + 0.05 * (n % 5.0)).to_backend_color().rgb;
    RGBColor(r, g, b)
}

/// A picture that can be drawn into any format.
pub trait Figure {
    /// Pixels, width and height.
    const SIZE: (u32, u32);
    fn chart<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> std::result::Result<(), String>;
}

/// Registers the built-in font, once.
fn fonts() -> Result<()> {
    static ONCE: Once = Once::new();
    let mut broken = false;
    // Open Sans, cut down to the Latin letters and signs that figures use; its licence lies beside it.
    ONCE.call_once(|| {
        broken = register_font(FONT, FontStyle::Normal, include_bytes!("assets/OpenSans-subset.ttf")).is_err();
    });
    if broken { Err(Error::usage("the built-in font cannot be read")) } else { Ok(()) }
}

/// Draws into `FILE.svg` or `FILE.png`, by its ending.
///
/// # Errors
/// Another ending; a file that cannot be written.
pub fn save<F: Figure>(path: &Path, figure: &F) -> Result<()> {
    fonts()?;
    match path.extension().and_then(|e| e.to_str()) {
        Some("svg") => into(SVGBackend::new(path, F::SIZE), figure),
        Some("png") => into(BitMapBackend::new(path, F::SIZE), figure),
        _ => Err("its name must end in .svg or .png".into()),
    }
    .map_err(|e| Error::usage(format!("cannot draw {}: {e}", path.display())))
}

fn into<B: DrawingBackend, F: Figure>(backend: B, figure: &F) -> std::result::Result<(), String> {
    let area = backend.into_drawing_area();
    figure.chart(&area)?;
    area.present().map_err(|e| e.to_string())
}

/// The box that names the series.
pub fn legend<'a, B: DrawingBackend + 'a, C: CoordTranslate>(
    chart: &mut ChartContext<'a, B, C>,
    position: SeriesLabelPosition,
) -> std::result::Result<(), String> {
    chart
        .configure_series_labels()
        .position(position)
        .label_font((FONT, 15))
        .background_style(WHITE.mix(0.9))
        .border_style(RGBColor(200, 200, 200))
        .draw()
        .map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_series_share_a_colour() {
        let all: std::collections::BTreeSet<_> = (0..60).map(colour).map(|c| (c.0, c.1, c.2)).collect();
        assert_eq!(all.len(), 60);
    }
}
