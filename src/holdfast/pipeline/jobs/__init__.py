"""Jobs that resume: a verb that makes rows is a plan and a worker.

``plan.plan`` compares what a command asks for with what its table holds. ``execute.execute`` runs a ``Worker`` on the
jobs that are owed, here or on other machines, and writes the rows. ``failures`` decides which errors become rows and
which stop the command. ``row_ids`` hashes row ids quickly. docs/adding/rows.md shows how a verb uses them.

``eval``, ``ask``, ``mask``, ``segment``, ``train``, ``detect`` and parts of ``mine`` are built so; ``synth`` uses the
plan only. ``perturb`` and ``generate`` still have planners of their own.
"""
