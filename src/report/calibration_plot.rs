//! The notebook's calibration as a picture: each prediction in the order it was made, how far its measurement lay from it,
//! its sealed interval, and the rolling median of ten.

use crate::error::{Error, Result};
use crate::notebook::amend::Derivation;
use crate::notebook::score::{Score, Standing, trend};
use crate::roofline::figure::{self, FONT, Figure};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::Path;

/// Draws into `FILE.svg` or `FILE.png`, by its ending.
///
/// # Errors
/// Another ending; nothing to draw; a file that cannot be written.
pub fn draw(path: &Path, scores: &[Score]) -> Result<()> {
    if scores.is_empty() {
        return Err(Error::incomplete("no prediction has a measurement yet, so there is nothing to draw")
            .try_next("workbench note measure ID"));
    }
    figure::save(path, &Calibration { scores })
}

struct Calibration<'a> {
    scores: &'a [Score],
}

impl Figure for Calibration<'_> {
    const SIZE: (u32, u32) = (1_100, 560);
    fn chart<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> std::result::Result<(), String> {
        chart(area, self.scores)
    }
}

fn chart<B: DrawingBackend>(area: &DrawingArea<B, Shift>, scores: &[Score]) -> std::result::Result<(), String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    area.fill(&WHITE).map_err(|e| text(&e))?;
    let ratio = |s: &Score| s.measured / s.predicted;
    let far = scores.iter().map(|s| ratio(s).ln().abs().exp()).fold(2.0, f64::max) * 1.1;
    let n = scores.len() as f64;
    let mut chart = ChartBuilder::on(area)
        .caption(format!("measured / predicted, {} predictions in their order", scores.len()), (FONT, 22))
        .margin(18)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..n + 1.0, (1.0 / far..far).log_scale())
        .map_err(|e| text(&e))?;
    chart
        .configure_mesh()
        .x_desc("prediction")
        .y_desc("measured / predicted")
        .x_label_formatter(&|v| format!("{v:.0}"))
        .y_label_formatter(&|v| format!("{v:.2}"))
        .label_style((FONT, 15))
        .axis_desc_style((FONT, 16))
        .bold_line_style(figure::BOLD)
        .light_line_style(figure::LIGHT)
        .draw()
        .map_err(|e| text(&e))?;
    let grey = RGBColor(120, 120, 120);
    chart
        .draw_series(std::iter::once(Rectangle::new([(0.0, 0.7), (n + 1.0, 1.3)], grey.mix(0.12).filled())))
        .map_err(|e| text(&e))?
        .label("within 30 %")
        .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 18, y + 5)], grey.mix(0.12).filled()));
    chart.draw_series(LineSeries::new([(0.0, 1.0), (n + 1.0, 1.0)], grey)).map_err(|e| text(&e))?;
    let mut regimes: Vec<&str> = Vec::new();
    for s in scores {
        if !regimes.contains(&s.regime.as_str()) {
            regimes.push(&s.regime);
        }
    }
    for (i, regime) in regimes.iter().enumerate() {
        let colour = figure::colour(i);
        let of = || scores.iter().enumerate().filter(|(_, s)| s.regime == *regime).map(|(i, s)| (i as f64 + 1.0, s));
        let bars = of().filter_map(|(x, s)| {
            let (low, high) = s.interval?;
            Some(PathElement::new([(x, low / s.predicted), (x, high / s.predicted)], colour.mix(0.5).stroke_width(3)))
        });
        chart.draw_series(bars).map_err(|e| text(&e))?;
        let sealed = of().map(|(x, s)| {
            let style = if s.standing == Standing::Sealed { colour.filled() } else { colour.stroke_width(2) };
            Circle::new((x, ratio(s)), 5, style)
        });
        chart
            .draw_series(sealed)
            .map_err(|e| text(&e))?
            .label(*regime)
            .legend(move |(x, y)| Circle::new((x + 9, y), 5, colour.filled()));
    }
    let rolling = trend(scores).rolling;
    if rolling.len() > 1 {
        let skipped = scores.len() - rolling.len();
        let line = rolling.iter().enumerate().map(|(i, r)| ((i + skipped) as f64 + 1.0, r.exp()));
        chart
            .draw_series(LineSeries::new(line, BLACK.stroke_width(2)))
            .map_err(|e| text(&e))?
            .label("typical miss of the last ten")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], BLACK.stroke_width(2)));
    }
    let unsealed = scores.iter().filter(|s| s.standing == Standing::Unsealed).count();
    if unsealed > 0 {
        chart
            .draw_series(std::iter::empty::<Circle<(f64, f64), i32>>())
            .map_err(|e| text(&e))?
            .label(format!("hollow: not sealed ({unsealed})"))
            .legend(move |(x, y)| Circle::new((x + 9, y), 5, grey.stroke_width(2)));
    }
    // A seal whose number is derived nowhere above it is marked, so that nobody takes it for a proper prediction.
    let unproven = |s: &Score| s.standing == Standing::Sealed && s.derivation != Some(Derivation::Sealed);
    let marked: Vec<f64> =
        scores.iter().enumerate().filter(|(_, s)| unproven(s)).map(|(i, _)| i as f64 + 1.0).collect();
    if !marked.is_empty() {
        let points =
            marked.iter().map(|x| Circle::new((*x, ratio(&scores[*x as usize - 1])), 8, BLACK.stroke_width(1)));
        chart
            .draw_series(points)
            .map_err(|e| text(&e))?
            .label(format!("ringed: no derivation before the seal ({})", marked.len()))
            .legend(move |(x, y)| Circle::new((x + 9, y), 7, BLACK.stroke_width(1)));
    }
    // Measurements below half of their prediction are the rarest: there the legend covers least.
    figure::legend(&mut chart, SeriesLabelPosition::LowerRight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_are_drawn() {
        let score = Score {
            file: "a.md".into(),
            date: "2026-11-30".into(),
            name: String::new(),
            unit: "ms".into(),
            regime: "bandwidth".into(),
            predicted: 10.0,
            measured: 14.0,
            r: 1.4f64.ln(),
            miss: 0.4,
            standing: Standing::Sealed,
            derivation: Some(Derivation::After),
            interval: Some((9.0, 12.0)),
            inside: Some(false),
        };
        let scores: Vec<Score> = (0..12).map(|i| Score { measured: 9.0 + f64::from(i), ..score.clone() }).collect();
        let folder = tempfile::tempdir().unwrap();
        let (svg, png) = (folder.path().join("c.svg"), folder.path().join("c.png"));
        draw(&svg, &scores).unwrap();
        draw(&png, &scores).unwrap();
        let text = std::fs::read_to_string(svg).unwrap();
        for part in
            ["12 predictions", "within 30 %", "bandwidth", "last ten", "ringed: no derivation before the seal (12)"]
        {
            assert!(text.contains(part), "{part}");
        }
        assert!(std::fs::read(png).unwrap().starts_with(b"\x89PNG"));
        assert!(draw(&folder.path().join("c.gif"), &scores).is_err());
        assert!(draw(&folder.path().join("d.svg"), &[]).is_err());
    }
}
