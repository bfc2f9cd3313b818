"""The patient-flow test: the workload frames are made for, against a script without a runtime.

Facilities times patients times five domains, and a document for every assessment found on the way;
six cursor steps per facility in frames of 50 rows. Run it with ``python -m bench.pft --help``.
"""
