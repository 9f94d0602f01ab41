//! The roofline as a picture: roofs from the ceilings, one mark for each measured kernel.

use super::figure::{self, FONT, Figure};
use super::{Ceilings, machine};
use crate::error::Result;
use plotters::coord::Shift;
use plotters::prelude::*;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A kernel's place: what it did, over what it moved, at what rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    pub op: String,
    pub variant: String,
    pub shape: String,
    /// `decode`, `prefill`, `square`, or the op's name: points of a group share a colour.
    pub group: String,
    pub flop_per_byte: f64,
    pub tflops: f64,
    pub gbps: f64,
    pub ns: i64,
    pub share_of_ceiling: f64,
    /// Whether a vendor's library did it.
    #[serde(default)]
    pub peer: bool,
}

/// Draws into `FILE.svg` or `FILE.png`, by its ending.
///
/// # Errors
/// Another ending; a file that cannot be written.
pub fn draw(path: &Path, ceilings: &Ceilings, points: &[Point]) -> Result<()> {
    figure::save(path, &Roofline { ceilings, points })
}

struct Roofline<'a> {
    ceilings: &'a Ceilings,
    points: &'a [Point],
}

impl Figure for Roofline<'_> {
    const SIZE: (u32, u32) = (1_200, 760);
    fn chart<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> std::result::Result<(), String> {
        chart(area, self.ceilings, self.points)
    }
}

/// Attainable TFLOP/s at an intensity under a bandwidth and a rate.
pub fn roof(flop_per_byte: f64, gbps: f64, tflops: f64) -> f64 {
    (flop_per_byte * gbps / 1e3).min(tflops)
}

fn chart<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    c: &Ceilings,
    points: &[Point],
) -> std::result::Result<(), String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    area.fill(&WHITE).map_err(|e| text(&e))?;
    let usable: Vec<&Point> = points.iter().filter(|p| p.flop_per_byte > 0.0 && p.tflops > 0.0).collect();
    let least = usable.iter().map(|p| p.flop_per_byte).fold(0.25, f64::min);
    let most = usable.iter().map(|p| p.flop_per_byte).fold(8.0 * c.ridge(), f64::max);
    let (x0, x1) = (10f64.powf(least.log10().floor()), 10f64.powf((1.05 * most).log10().ceil()));
    let low = usable.iter().map(|p| p.tflops).fold(roof(x0, c.read_gbps, c.bf16_tflops), f64::min);
    let (y0, y1) = (10f64.powf((0.8 * low).log10().floor()), 10f64.powf((1.5 * c.bf16_tflops).log10().ceil()));
    let title = format!("{} ({}: {})", c.gpu, c.provenance, c.source);
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 22))
        .margin(18)
        .x_label_area_size(48)
        .y_label_area_size(64)
        .build_cartesian_2d((x0..x1).log_scale(), (y0..y1).log_scale())
        .map_err(|e| text(&e))?;
    let number = |v: &f64| if *v >= 1.0 { format!("{v:.0}") } else { format!("{v}") };
    chart
        .configure_mesh()
        .x_desc("arithmetic intensity, FLOP per byte of least traffic")
        .y_desc("TFLOP/s")
        .x_label_formatter(&number)
        .y_label_formatter(&number)
        .label_style((FONT, 15))
        .axis_desc_style((FONT, 16))
        .bold_line_style(figure::BOLD)
        .light_line_style(figure::LIGHT)
        .draw()
        .map_err(|e| text(&e))?;

    let line = |gbps: f64, tflops: f64| {
        let knee = (tflops * 1e3 / gbps).clamp(x0, x1);
        vec![(x0, roof(x0, gbps, tflops)), (knee, roof(knee, gbps, tflops)), (x1, roof(x1, gbps, tflops))]
    };
    let grey = RGBColor(120, 120, 120);
    let mut roofs = vec![
        (
            format!("read {:.0} GB/s, bf16 {:.0} TFLOP/s", c.read_gbps, c.bf16_tflops),
            c.read_gbps,
            c.bf16_tflops,
            BLACK,
            2,
        ),
        (
            format!("bf16 under sustained load {:.0} TFLOP/s", c.bf16_sustained_tflops),
            c.read_gbps,
            c.bf16_sustained_tflops,
            grey,
            1,
        ),
        (format!("fp32 {:.1} TFLOP/s", c.fp32_tflops), c.read_gbps, c.fp32_tflops, RGBColor(150, 90, 40), 1),
    ];
    if let Some(l2) = c.l2_gbps {
        roofs.push((format!("L2 read {l2:.0} GB/s"), l2, c.bf16_tflops, RGBColor(100, 150, 100), 1));
    }
    if let Some(sheet) = machine::datasheet(&c.gpu).filter(|_| c.provenance != crate::units::Provenance::Cited) {
        let name = format!("datasheet {:.0} GB/s, {:.0} TFLOP/s", sheet.memory_gbps, sheet.bf16_tflops);
        roofs.push((name, sheet.memory_gbps, sheet.bf16_tflops, RGBColor(190, 190, 190), 1));
    }
    for (name, gbps, tflops, colour, width) in roofs {
        let style = colour.stroke_width(width);
        chart
            .draw_series(LineSeries::new(line(gbps, tflops), style))
            .map_err(|e| text(&e))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    let ridge = c.ridge();
    chart
        .draw_series(std::iter::once(PathElement::new([(ridge, y0), (ridge, c.bf16_tflops)], grey.mix(0.5))))
        .map_err(|e| text(&e))?
        .label(format!("ridge {ridge:.0} FLOP/byte"))
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], grey.mix(0.5)));

    let mut groups: Vec<&str> = Vec::new();
    for p in &usable {
        if !groups.contains(&p.group.as_str()) {
            groups.push(&p.group);
        }
    }
    for (i, group) in groups.iter().enumerate() {
        let colour = figure::colour(i);
        let of = |peer: bool| usable.iter().filter(move |p| p.group == *group && p.peer == peer);
        chart
            .draw_series(of(false).map(|p| Circle::new((p.flop_per_byte, p.tflops), 5, colour.filled())))
            .map_err(|e| text(&e))?
            .label(group.to_string())
            .legend(move |(x, y)| Circle::new((x + 9, y), 5, colour.filled()));
        chart
            .draw_series(of(true).map(|p| Cross::new((p.flop_per_byte, p.tflops), 5, colour.stroke_width(2))))
            .map_err(|e| text(&e))?;
    }
    if usable.iter().any(|p| p.peer) {
        let style = BLACK.stroke_width(2);
        chart
            .draw_series(std::iter::empty::<Cross<(f64, f64), i32>>())
            .map_err(|e| text(&e))?
            .label("the vendor's library")
            .legend(move |(x, y)| Cross::new((x + 9, y), 5, style));
    }
    figure::legend(&mut chart, SeriesLabelPosition::LowerRight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_are_drawn_and_carry_the_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let point = Point {
            op: "matmul".into(),
            variant: "gemv".into(),
            shape: "m=1".into(),
            group: "decode".into(),
            flop_per_byte: 1.0,
            tflops: 4.1,
            gbps: 4_100.0,
            ns: 57_000,
            share_of_ceiling: 0.9,
            peer: false,
        };
        let points = [point.clone(), Point { peer: true, tflops: 4.0, ..point }];
        let (svg, png) = (folder.path().join("r.svg"), folder.path().join("r.png"));
        draw(&svg, &Ceilings::h200(), &points).unwrap();
        draw(&png, &Ceilings::h200(), &points).unwrap();
        let text = std::fs::read_to_string(svg).unwrap();
        for part in ["NVIDIA H200", "read 4581 GB/s, bf16 771 TFLOP/s", "ridge 168", "datasheet 4800", "decode"] {
            assert!(text.contains(part), "{part}");
        }
        let bytes = std::fs::read(png).unwrap();
        assert_eq!(bytes[..8], *b"\x89PNG\r\n\x1a\n");
        assert!(bytes.len() > 10_000);
        assert!(draw(&folder.path().join("r.gif"), &Ceilings::h200(), &[]).is_err());
    }

    #[test]
    fn the_roof_bends_at_the_ridge() {
        let c = Ceilings::h200();
        let at = |x: f64| roof(x, c.read_gbps, c.bf16_tflops);
        assert!((at(c.ridge()) - c.bf16_tflops).abs() < 1e-9);
        assert!((at(1.0) - 4.581).abs() < 1e-9 && at(1e6) == c.bf16_tflops);
    }
}
