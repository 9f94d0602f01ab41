#!/bin/bash
# The sealed sweep: calibrate, predict, seal, and only then measure. Needs workbench and workbench.images in ./bin (or BIN) and
# nothing else; about 120 s on one H200. Results: OUT. CAL and SWEEP name other lists (files or built-in names).
unset NVCC_APPEND_FLAGS NVCC_PREPEND_FLAGS
: "${OUT:=out}"; : "${CAL:=calibration}"; : "${SWEEP:=drawn:1201}"; : "${SOURCE:=reports/h200/2026-12-01-sweep}"
: "${SWEEP2:=decode}"; : "${CALTIME:=92}"; : "${SWEEPTIME:=45}"
mkdir -p "$OUT"
for d in ${BIN:-} bin . ../bin ../bin-main; do [ -e "$d/workbench" ] && [ -e "$d/workbench.images" ] && BIN=$d && break; done
chmod +x "$BIN/workbench" 2>/dev/null
W="$BIN/workbench"
log() { echo "$(date -u +%Y-%m-%dT%H:%M:%S.%3NZ) $*" | tee -a "$OUT/order.txt"; }
bench() { "$W" bench --no-check --no-library --max-noise 0.01 --min-time 10 --timeout 0.15 "$@"; }
# A card that another process uses gives other times: wait for it to be alone.
for i in $(seq 1 20); do
  busy=$(nvidia-smi -i "${CUDA_VISIBLE_DEVICES:-0}" --query-compute-apps=pid --format=csv,noheader 2>/dev/null | wc -l)
  [ "$busy" = 0 ] && break; sleep 1
done
log "begin, $busy other processes on the card"
bench --sweep "$CAL" --within "$CALTIME" --json "$OUT/calibration.jsonl" > "$OUT/calibration.txt" 2>&1
log "calibration measured, rc $?, $(grep -c '"ns"' "$OUT/calibration.jsonl") rows"
"$W" predict calibrate "$OUT/calibration.jsonl" --source "$SOURCE" --json "$OUT/fits.json" > "$OUT/fits.txt" 2>&1
log "calibrated, rc $?"
"$W" predict sweep "$SWEEP" --calibration "$OUT/fits.json" --seal "$OUT/sealed.jsonl" > /dev/null 2> "$OUT/seal.txt"
log "sealed $SWEEP, rc $?, sha256 $(sha256sum < "$OUT/sealed.jsonl" | cut -c1-64)"
"$W" predict sweep "$SWEEP2" --calibration "$OUT/fits.json" --seal "$OUT/sealed-decode.jsonl" > /dev/null 2>> "$OUT/seal.txt"
log "sealed $SWEEP2, rc $?, sha256 $(sha256sum < "$OUT/sealed-decode.jsonl" | cut -c1-64)"
sync
bench --sweep "$SWEEP" --within "$SWEEPTIME" --json "$OUT/sweep.jsonl" > "$OUT/sweep.txt" 2>&1
log "sweep measured, rc $?, $(grep -c '"ns"' "$OUT/sweep.jsonl") rows"
bench --sweep "$SWEEP2" --within 25 --json "$OUT/decode.jsonl" > "$OUT/decode.txt" 2>&1
log "second sweep measured, rc $?, $(grep -c '"ns"' "$OUT/decode.jsonl") rows"
"$W" predict check "$OUT/sealed.jsonl" "$OUT/sweep.jsonl" --json "$OUT/check.json" > "$OUT/check.txt" 2>&1
log "checked, rc $?"
"$W" predict check "$OUT/sealed-decode.jsonl" "$OUT/decode.jsonl" --json "$OUT/check-decode.json" > "$OUT/check-decode.txt" 2>&1
log "second checked, rc $?"
cat "$OUT/check.txt" "$OUT/check-decode.txt"
# Samples are for the distribution of a row, which p10 and p90 keep; without them a run is small enough to commit.
python3 - "$OUT/calibration.jsonl" "$OUT/sweep.jsonl" "$OUT/decode.jsonl" <<'PY'
import json, sys
for name in sys.argv[1:]:
    rows = [json.loads(l) for l in open(name)]
    for r in rows: r.pop("samples_ns", None)
    open(name, "w").write("".join(json.dumps(r, separators=(",", ":")) + "\n" for r in rows))
PY
gzip -9f "$OUT/calibration.txt" "$OUT/sweep.txt" "$OUT/decode.txt"
ls -la "$OUT"
