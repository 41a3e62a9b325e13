-- Old segments left the index before; now all of them are in it.

DROP INDEX IF EXISTS recollect.passage_terms_cold;

-- For each space: cold passages get new numbers, so that they are packed again like new ones.
UPDATE recollect.counters AS c
SET documents = c.documents + t.documents, total_length = c.total_length + t.length,
    index_epoch = c.index_epoch + 1
FROM (
    SELECT count(*) AS documents, coalesce(sum(length), 0)::bigint AS length
    FROM recollect.passage_terms WHERE space_id = %(space)s AND cold
) AS t
WHERE c.space_id = %(space)s;
UPDATE recollect.passage_terms AS t SET passage_no = n.new_no, cold = false
FROM (
    SELECT p.passage_no, c.next_passage - 1 + row_number() OVER (ORDER BY p.passage_no) AS new_no
    FROM recollect.passages AS p
    JOIN recollect.counters AS c ON c.space_id = %(space)s
    WHERE p.space_id = %(space)s AND p.cold
) AS n
WHERE t.space_id = %(space)s AND t.passage_no = n.passage_no;
UPDATE recollect.vectors AS v SET passage_no = n.new_no, cold = false
FROM (
    SELECT p.passage_no, c.next_passage - 1 + row_number() OVER (ORDER BY p.passage_no) AS new_no
    FROM recollect.passages AS p
    JOIN recollect.counters AS c ON c.space_id = %(space)s
    WHERE p.space_id = %(space)s AND p.cold
) AS n
WHERE v.space_id = %(space)s AND v.passage_no = n.passage_no;
-- The next vector that is written makes the signs of all again; until then all are compared exactly.
DELETE FROM recollect.sign_blocks WHERE space_id = %(space)s AND EXISTS (
    SELECT FROM recollect.passages WHERE space_id = %(space)s AND cold
);
UPDATE recollect.embedders SET signed = false WHERE space_id = %(space)s AND EXISTS (
    SELECT FROM recollect.passages WHERE space_id = %(space)s AND cold
);
UPDATE recollect.passages AS q SET passage_no = n.new_no, cold = false
FROM (
    SELECT p.passage_no, c.next_passage - 1 + row_number() OVER (ORDER BY p.passage_no) AS new_no
    FROM recollect.passages AS p
    JOIN recollect.counters AS c ON c.space_id = %(space)s
    WHERE p.space_id = %(space)s AND p.cold
) AS n
WHERE q.space_id = %(space)s AND q.passage_no = n.passage_no;
UPDATE recollect.counters SET next_passage = greatest(next_passage, 1 + (
    SELECT coalesce(max(passage_no), 0) FROM recollect.passages WHERE space_id = %(space)s
)) WHERE space_id = %(space)s;
UPDATE recollect.segments SET cold = false WHERE space_id = %(space)s AND cold;
