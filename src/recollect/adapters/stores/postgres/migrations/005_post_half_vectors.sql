-- No code of version 4 is left that reads v alone.

ALTER TABLE recollect.embedders ALTER COLUMN half SET DEFAULT true;

-- For each space: what embedders made is rounded; what was imported stays as it came.
UPDATE recollect.embedders SET half = true WHERE space_id = %(space)s AND NOT half;
UPDATE recollect.vectors AS w
SET half = w.v::halfvec, length = l2_norm(w.v::halfvec), v = NULL
WHERE w.space_id = %(space)s AND w.v IS NOT NULL AND vector_norm(w.v) < 60000 AND NOT EXISTS (
    SELECT FROM recollect.passages AS p
    JOIN recollect.segments AS s ON s.space_id = %(space)s AND s.sequence = p.sequence
    WHERE p.space_id = %(space)s AND p.passage_no = w.passage_no
        AND s.origin LIKE '%% vectors.bin:%%'
);
UPDATE recollect.fact_vectors SET half = v::halfvec, v = NULL
WHERE space_id = %(space)s AND v IS NOT NULL AND vector_norm(v) < 60000;
